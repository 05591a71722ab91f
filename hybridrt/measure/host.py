"""What the host gives this process: usable cores, memory, and whether there is a GIL.

Affinity and cgroup quota count, not the host's cores: a container with half a core has half a
core. A source that the platform lacks, or that cannot be read now, is skipped, never guessed: a process
at its limit of open files can open none, and under systemd's `ProcSubset=pid` there is no /proc/meminfo.
"""

from __future__ import annotations

import math
import os
import sys
from contextlib import suppress
from pathlib import Path

try:  # not at the first question: a fork in the middle of an import leaves its lock to the child
    import psutil
except ImportError:  # it does not load in sub-interpreters
    HAS_PSUTIL = False
else:
    HAS_PSUTIL = True

__all__ = ["gil_enabled", "memory_limit", "memory_share", "usable_cores"]

_CGROUP = Path("/sys/fs/cgroup")
_MEMORY_FILES = (
    ("memory.current", "memory.max", "memory.stat"),
    ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes", "memory/memory.stat"),
)
"""Use, limit and details of a cgroup, version 2 and version 1."""
UNKNOWN_MEMORY = 1 << 30
"""What a host is taken to have that does not tell: what 256 threads are reckoned with. Not measured."""


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
    """Return the bytes this process may use: the cgroup limit, or the host's memory.

    Always a number, because pools are made by it: 1 GiB where nobody can tell.
    """
    total, _ = _memory()
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        words = _words(cgroup / name)
        if words and words[0].isdigit():
            return min(total, int(words[0]))
    return total


def memory_share(cgroup: Path = _CGROUP) -> float | None:
    """Return the share of memory in use, of the host's or of the cgroup's limit, whichever is scarcer.

    What the kernel would drop at once, the page cache, does not count as used. What cannot be read counts
    for nothing; None if neither can.
    """
    total, available = _memory()
    share = None if available is None else 1.0 - available / total
    for current, limit, stat in _MEMORY_FILES:
        used, most = _words(cgroup / current), _words(cgroup / limit)
        if used and most and used[0].isdigit() and most[0].isdigit() and 0 < int(most[0]) < total:
            own = (int(used[0]) - _droppable(cgroup / stat)) / int(most[0])
            return own if share is None else max(share, own)
    return share


def _memory() -> tuple[int, int | None]:
    """Return the bytes of memory of the host, and those available, if that is known."""
    if HAS_PSUTIL:
        with suppress(OSError, LookupError, ValueError):  # it has no file, or one without what it looks for
            memory = psutil.virtual_memory()
            return memory.total, memory.available
    return _physical_memory(), None


def _physical_memory() -> int:
    """Return the bytes of memory of the host, without opening a file."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows, and not by these names everywhere
        return UNKNOWN_MEMORY
    return total if total > 0 else UNKNOWN_MEMORY


def _droppable(stat: Path) -> int:
    words = _words(stat)
    names = {"inactive_file", "total_inactive_file"}
    return max(
        (int(value) for name, value in zip(words[::2], words[1::2], strict=False) if name in names), default=0
    )


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
