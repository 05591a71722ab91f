"""What the host gives this process: usable cores, memory, and whether there is a GIL.

Affinity and cgroup quota count, not the host's cores: a container with half a core has half a
core. A source that the platform lacks is skipped, never guessed.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import psutil

__all__ = ["gil_enabled", "memory_limit", "usable_cores"]

_CGROUP = Path("/sys/fs/cgroup")


def gil_enabled() -> bool:
    """Tell whether threads of this interpreter share one GIL."""
    probe = getattr(sys, "_is_gil_enabled", None)
    return True if probe is None else bool(probe())


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Return how many cores this process may keep busy, at least 1.

    The smallest of affinity (or `PYTHON_CPU_COUNT` where the interpreter honours it) and the
    cgroup v2 or v1 CPU quota, rounded up.
    """
    counter = getattr(os, "process_cpu_count", None)
    if counter is not None:
        cores = counter() or 1
    elif hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = cpu_quota(cgroup)
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def cpu_quota(cgroup: Path = _CGROUP) -> float | None:
    """Return the cgroup CPU quota in cores, or None without one."""
    words = _words(cgroup / "cpu.max")
    if len(words) == 2 and words[0] != "max":
        return _ratio(words[0], words[1])
    quota = _words(cgroup / "cpu" / "cpu.cfs_quota_us")
    period = _words(cgroup / "cpu" / "cpu.cfs_period_us")
    if quota and period and not quota[0].startswith("-"):
        return _ratio(quota[0], period[0])
    return None


def memory_limit(cgroup: Path = _CGROUP) -> int:
    """Return the bytes this process may use: the cgroup limit, or the host's memory."""
    total = int(psutil.virtual_memory().total)
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        words = _words(cgroup / name)
        if words and words[0].isdigit():
            return min(total, int(words[0]))
    return total


def _ratio(numerator: str, denominator: str) -> float | None:
    try:
        return int(numerator) / int(denominator)
    except (ValueError, ZeroDivisionError):
        return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError):
        return []
