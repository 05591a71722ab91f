"""CPU time of this process and of all others: a benchmark that was disturbed must say so."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psutil

__all__ = ["CpuMeter"]


class CpuMeter:
    """Counts from its creation on."""

    def __init__(self) -> None:
        self._wall, self._own, self._all = _clocks()

    def read(self) -> Mapping[str, float]:
        """Return CPU seconds per second: `cpu` of this process, `cpu_others` of the rest of the system."""
        wall, own, everybody = _clocks()
        seconds = wall - self._wall
        cpu = (own - self._own) / seconds
        return {"cpu": cpu, "cpu_others": max(0.0, (everybody - self._all) / seconds - cpu)}


def _clocks() -> tuple[float, float, float]:
    # User time has that of guests in it and interrupts are somebody's too; waiting for a disk is nobody's.
    spent = psutil.cpu_times()
    fields = ("user", "nice", "system", "irq", "softirq", "steal")
    everybody = sum(getattr(spent, name, 0.0) for name in fields)
    return time.perf_counter(), time.process_time(), everybody
