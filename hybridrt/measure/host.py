"""What the host gives this process: usable cores, memory, and whether there is a GIL.

Affinity and control groups count, not the host's cores: a container with half a core has half a core. The
group of the process counts and all groups above it; the least of their limits holds. A source that the
platform lacks, or that cannot be read now, is skipped, never guessed: a process at its limit of open files
can open none, and under systemd's `ProcSubset=pid` there is no /proc/meminfo.

All of it may change while the process lives, and all of it is read from files: callers keep what they were
told, and ask again where reading may take its time. The GIL is kept where the kernel has the file in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hybridrt.measure import kernel

try:  # not at the first question: a fork in the middle of an import leaves its lock to the child
    import psutil
except ImportError:  # it does not load in sub-interpreters
    HAS_PSUTIL = False
else:
    HAS_PSUTIL = True

__all__ = ["Memory", "gil_enabled", "read_memory", "throttled_ns", "usable_cores"]

_CGROUPS = Path("/sys/fs/cgroup")
"""Where the control groups are mounted."""
_OWN = Path("/proc/self/cgroup")
"""Names those of this process."""
_CPU_FILES = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
"""Quota and period of a cgroup, version 2 and version 1."""
_MEMORY_FILES = (
    ("memory.current", "memory.max"),
    ("memory.usage_in_bytes", "memory.limit_in_bytes"),
)
"""Use and limit of a cgroup, version 2 and version 1."""
_LONGEST = 4096
"""Bytes of a file that are read: a page, which the kernel gives at once. The longest here has half of it."""
UNKNOWN_MEMORY = 1 << 30
"""What a host is taken to have that does not tell: what 256 threads are reckoned with. Not measured."""


@dataclass(frozen=True, slots=True)
class Memory:
    """How much memory the process may use.

    Attributes:
        limit: Bytes; the least of the host's memory, the limits of its control groups, and its own budget.
        given: The same without its own budget.
        share: Part in use of the one of them that is nearest to its end, in [0, 1] or above; None if that
            cannot be read.
    """

    limit: int
    given: int
    share: float | None


def gil_enabled() -> bool:
    """Return True if threads of this interpreter share one GIL."""
    probe = getattr(sys, "_is_gil_enabled", None)
    return True if probe is None else bool(probe())


def usable_cores(cgroups: Path = _CGROUPS, own: Path = _OWN) -> float:
    """Return how many cores this process may keep busy.

    The smallest of affinity (or `PYTHON_CPU_COUNT` where the interpreter honours it) and the CPU quotas of
    its control groups, which may be part of a core.
    """
    counter = getattr(os, "process_cpu_count", None)
    cores = os.cpu_count() or 1
    with suppress(OSError):  # a sandbox refuses to tell the affinity
        if counter is not None:
            cores = counter() or 1
        elif hasattr(os, "sched_getaffinity"):
            cores = len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity") and cores == len(os.sched_getaffinity(0)):
            # So many may the calling thread use; it may be bound to fewer than the main thread.
            cores = max(cores, len(os.sched_getaffinity(os.getpid())))
    quota = cpu_quota(cgroups, own)
    return cores if quota is None else min(cores, quota)


def cpu_quota(cgroups: Path = _CGROUPS, own: Path = _OWN) -> float | None:
    """Return the least CPU quota of the control groups in cores, or None without one."""
    quotas = []
    for group in _groups("cpu", cgroups, own):
        for names in _CPU_FILES:
            words = [word for name in names for word in _words(group / name)]
            if len(words) == 2 and words[0] != "max" and not words[0].startswith("-"):
                quotas.append(_ratio(words[0], words[1]))
    return min((quota for quota in quotas if quota is not None), default=None)


def throttled_ns(cgroups: Path = _CGROUPS, own: Path = _OWN) -> int | None:
    """Return for how long CPU quotas have stopped the control groups of this process, over all cores."""
    times = []
    for group in _groups("cpu", cgroups, own):
        words = _words(group / "cpu.stat")
        told = dict(zip(words[::2], words[1::2], strict=False))
        for name, unit_ns in (("throttled_usec", 1000), ("throttled_time", 1)):
            if told.get(name, "").isdigit():
                times.append(int(told[name]) * unit_ns)
    return max(times, default=None)


def read_memory(
    memory_max: int | None = None,
    children: Iterable[int] = (),
    cgroups: Path = _CGROUPS,
    own: Path = _OWN,
) -> Memory:
    """Return how much memory this process may use, and how much of that is in use.

    What the kernel would drop at once, the page cache, does not count as used by a group. What cannot be
    read counts for nothing; the limit is a number all the same, because pools are made by it.

    Args:
        memory_max: A budget in bytes for the process and its `children`, or None.
        children: Process ids that share the budget; what they share of their memory counts for each.
        cgroups: As `_CGROUPS`.
        own: As `_OWN`.
    """
    total, available = _host_memory()
    limits = [(total, None if available is None else total - available)]
    limits += [(most, used) for most, used in _group_memory(cgroups, own) if 0 < most < total]
    given = min(most for most, _ in limits)
    if memory_max is not None:
        limits.append((memory_max, _resident((os.getpid(), *children))))
    return Memory(
        limit=given if memory_max is None else min(given, memory_max),
        given=given,
        share=max((used / most for most, used in limits if used is not None), default=None),
    )


def _groups(controller: str, cgroups: Path, own: Path) -> list[Path]:
    """Return the folders of the control groups of this process, by both versions, whether they exist or not.

    Within a container the path of the group may be the host's, of which only the end can be seen here, as
    the top: so that counts in any case.
    """
    tops = {"": cgroups, controller: cgroups / controller}
    groups = dict.fromkeys(tops.values())
    for line in _lines(own):
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "", "")
        parts = PurePosixPath(path).parts[1:]
        if ".." in parts:  # beyond the top of what a container sees
            continue
        for name in set(controllers.split(",")) & tops.keys():
            groups |= dict.fromkeys(tops[name].joinpath(*parts[:n]) for n in range(len(parts), 0, -1))
    return list(groups)


def _group_memory(cgroups: Path, own: Path) -> Iterator[tuple[int, int | None]]:
    """Return limit and use of each control group that has a limit."""
    for group in _groups("memory", cgroups, own):
        for current, limit in _MEMORY_FILES:
            most = _words(group / limit)
            if most and most[0].isdigit():
                used = _words(group / current)
                known = bool(used) and used[0].isdigit()
                yield int(most[0]), int(used[0]) - _droppable(group / "memory.stat") if known else None


def _resident(processes: Iterable[int]) -> int | None:
    """Return the bytes of memory that processes have; 0 for those that are gone; None if the system does not
    say.

    Linux tells without giving the GIL away; psutil opens two files for each.
    """
    processes = tuple(processes)
    told = [words[1] for each in processes if len(words := kernel.read(f"/proc/{each}/statm").split()) > 1]
    if told:
        return sum(map(int, told)) * os.sysconf("SC_PAGE_SIZE")
    resident = None
    for process in processes if HAS_PSUTIL else ():
        with suppress(psutil.Error, OSError):
            resident = (resident or 0) + psutil.Process(process).memory_info().rss
    return resident


def _host_memory() -> tuple[int, int | None]:
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
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    try:
        return kernel.read(str(path), _LONGEST).decode().splitlines()
    except UnicodeDecodeError:
        return []
