"""What a sizing policy is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from hybridrt.values import Reason

__all__ = ["Limits", "Policy", "State", "Window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a size.

    Attributes:
        lowest: The least number of workers, at least 1.
        highest: The most.
        capacity: CPU seconds per second that GIL-bound calls can get: 1 under a GIL, else the usable cores;
            never more than those.
        cores: Usable cores, for CPU time spent without the GIL; under a CPU quota perhaps part of one.
    """

    lowest: int
    highest: int
    capacity: float = 1.0
    cores: float = 1.0

    def clamp(self, workers: int) -> int:
        """Return the nearest size within the bounds."""
        return max(self.lowest, min(workers, self.highest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What happened in one control interval.

    The governed lane is the waiting calls (`demand`) or all calls (`paper`). A signal that the platform
    lacks, or that nothing was seen of in the interval, is None, never a made-up number. Shares lie in
    [0, 1], times are seconds.

    Attributes:
        seconds: Length of the interval.
        queued: Calls of the governed lane queued at its end.
        running: Calls of the governed lane running at its end.
        completed: Its calls that finished in the interval.
        wall: Wall time of those, queueing not included.
        cpu: CPU time of those.
        busy: Mean number of its calls that ran at once: the busy integral over the interval.
        lane_cpu: CPU seconds per second that the lane used, running calls included.
        beta_certified: Corrected blocking ratio of the finished calls, a lower bound: neither the wait
            for the GIL nor the wait for a core counts as blocking.
        gil_share: Share of the governor's wake-ups that found the GIL taken.
        knee: Size at which the GIL or the cores are just full by the functions' own profiles: capacity
            over the mean GIL or CPU demand of a call of the lane. The CPU part is measured well; the
            wait is the least seen, so the true knee is this or higher.
        loop_lateness: 99th percentile of the recent delay of the loop that suffers most, over the least
            delay that one of the loops may suffer: above 1 it is late. None without a loop that is measured.
        memory: Share of the memory budget in use.
        moved: Bytes per second that the worker threads asked to read and write; None unless the policy has
            `needs_moved`, and where the kernel does not tell.
    """

    seconds: float
    queued: int
    running: int
    completed: int
    wall: float
    cpu: float
    busy: float = 0.0
    lane_cpu: float = 0.0
    beta_certified: float | None = None
    gil_share: float | None = None
    knee: float | None = None
    loop_lateness: float | None = None
    memory: float | None = None
    moved: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a policy remembers between windows; a policy with more to remember has a subclass.

    Attributes:
        workers: The size decided.
        reason: Why.
        beta: The smoothed blocking ratio.
        streak: Windows in a row that asked for growth (`paper`), or in which calls held each other up
            (`demand`).
    """

    workers: int
    reason: Reason = Reason.START
    beta: float | None = None
    streak: int = 0


class Policy(Protocol):
    """A sizing policy: a pure function from a window to the next state.

    For one of your own inherit from it and write `decide`; what else there is has defaults. Give an instance
    to `Runtime(policy=...)` or `AdaptiveThreadPoolExecutor(policy=...)`.

    It is called in a thread of the runtime, with the lock of all pools held: it must be quick (some 20 us),
    and must not wait, do I/O, log, or call an executor. All that it remembers belongs into its state, so that
    the decisions can be replayed: for more than a size use a subclass of `State`. If it raises, or returns
    what is no state, the pool keeps its size, `statistics().policy_error` says why, and it is asked again at
    the end of the next window.
    """

    @property
    def interval(self) -> float:
        """Seconds between two decisions; read once."""
        return 0.5

    @property
    def governs(self) -> Literal["all", "waiting"]:
        """What the size counts.

        "all": threads, whatever their calls do; nothing keeps computing calls from sharing the GIL.
        "waiting": calls that wait; those that compute need a permit, as under `demand`.
        """
        return "all"

    @property
    def needs_moved(self) -> bool:
        """Whether `Window.moved` is to be measured: some 10 us a thread for each window."""
        return False

    def start(self, limits: Limits) -> State:
        """Return the state before the first window; by default the least size."""
        return State(workers=limits.lowest)

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        """Return the next state, of which the reason is the whole explanation.

        A size beyond the limits becomes the nearest one within them.
        """
        ...

    def at_rest(self, limits: Limits, state: State) -> bool:
        """Return True if windows without calls would change nothing any more, so that no thread need wake up.

        By default when the size is the first one.
        """
        return state.workers == self.start(limits).workers
