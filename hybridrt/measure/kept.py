"""What the kernel tells of time without a core, beyond the run-queue delay of each thread."""

from __future__ import annotations

from hybridrt.measure import kernel
from hybridrt.measure.host import throttled_ns

__all__ = ["RUN_DELAY_TOLD", "machine_times", "throttled_beyond_run_delay_ns"]

RUN_DELAY_TOLD = len(kernel.read("/proc/self/schedstat").split()) == 3
"""The kernel tells for how long a thread was ready and had no core; what a quota stops is in that."""


def machine_times(path: str = "/proc/stat") -> tuple[int, int] | None:
    """Return the CPU time in use and that stolen by the host since the start, in ticks; None if untold."""
    name, *words = kernel.read(path).partition(b"\n")[0].split() or [b""]
    if name != b"cpu" or len(words) < 8:
        return None
    user, nice, system, _, _, irq, softirq, steal = (int(word) for word in words[:8])
    return user + nice + system + irq + softirq, steal


def throttled_beyond_run_delay_ns() -> int:
    """Return for how long the quota has stopped the process, unless the run-queue delay has that."""
    return 0 if RUN_DELAY_TOLD else throttled_ns() or 0
