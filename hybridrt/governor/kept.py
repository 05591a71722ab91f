"""Brings up to date for how long calls had no core; read by the governor now and then."""

from __future__ import annotations

from collections.abc import Callable

from hybridrt.measure.kept import machine_times, throttled_beyond_run_delay_ns
from hybridrt.observe.kept import Kept, stolen_share

__all__ = ["KeptReader"]


class KeptReader:
    """Two readings give the shares of the time between them.

    Args:
        machine: Reads the machine's time in use and stolen time; None where that is not told.
        throttled: Reads for how long the quota has stopped the process.
    """

    def __init__(
        self,
        machine: Callable[[], tuple[int, int] | None] = machine_times,
        throttled: Callable[[], int] = throttled_beyond_run_delay_ns,
    ) -> None:
        self._machine, self._throttled = machine, throttled
        self._before: tuple[int, tuple[int, int] | None, int] | None = None

    def read(self, now_ns: int, cores: int) -> Kept:
        """Return the shares since the last time; none the first time.

        Args:
            now_ns: The time.
            cores: Usable ones; the quota stops all of them, and the kernel sums that up.
        """
        before, self._before = self._before, (now_ns, self._machine(), self._throttled())
        if before is None or now_ns <= before[0]:
            return Kept()
        (since_ns, machine, stopped), (_, machine_now, stopped_now) = before, self._before
        return Kept(
            stolen=0.0 if machine is None or machine_now is None else stolen_share(machine, machine_now),
            throttled=max(0.0, (stopped_now - stopped) / cores / (now_ns - since_ns)),
        )
