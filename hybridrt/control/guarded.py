"""A policy of the user's own, guarded: what it returns is checked, and one that raises is asked no more."""

from __future__ import annotations

from dataclasses import replace

from hybridrt.control.window import Limits, Policy, State, Window
from hybridrt.values import Reason

__all__ = ["GuardedPolicy", "check_policy"]


def check_policy(policy: object) -> None:
    """Refuse what is no policy.

    Raises:
        TypeError: `start` or `decide` is missing, or `interval` is no number.
        ValueError: `interval` is not above 0, or `governs` is neither "waiting" nor "all".
    """
    lacking = [name for name in ("interval", "start", "decide") if not hasattr(policy, name)]
    if lacking or isinstance(policy, type):
        what = f"{policy!r}, which has no {', no '.join(lacking)}" if lacking else f"the class {policy!r}"
        raise TypeError(
            'policy must be "demand", "paper", "throughput" or an object with interval, start(limits) and '
            f"decide(limits, state, window), got {what}"
        )
    interval = policy.interval  # type: ignore[attr-defined]
    if isinstance(interval, bool) or not isinstance(interval, int | float):
        raise TypeError(f"the policy's interval is in seconds and must be a number, got {interval!r}")
    if not 0 < interval < float("inf"):
        raise ValueError(f"the policy's interval is in seconds and must be above 0, got {interval!r}")
    governs = getattr(policy, "governs", "waiting")
    if governs not in ("waiting", "all"):
        raise ValueError(f'the policy\'s governs must be "waiting" or "all", got {governs!r}')


class GuardedPolicy:
    """Asks a policy; keeps its size within the limits, and the last size when it raises.

    Args:
        policy: As `check_policy` wants it.

    Attributes:
        error: What the policy did wrong, in words; None while it works. It is asked no more then.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.interval: float = policy.interval
        self.reads_bytes: bool = getattr(policy, "reads_bytes", False)
        self.error: str | None = None
        self._rests = False

    def start(self, limits: Limits) -> State:
        """Return its first state.

        Raises:
            TypeError: It is none. What the policy raises passes: nothing works yet that could go on.
        """
        return _checked(self._policy.start(limits), limits)

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        """Return its next state; the old one, with its reason, after it has failed."""
        if self.error is None:
            try:
                after = _checked(self._policy.decide(limits, state, window), limits)
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
            else:
                quiet = not (window.queued or window.running or window.completed)
                self._rests = quiet and after.workers == state.workers
                return after
        self._rests = True
        return replace(state, workers=limits.clamp(state.workers), reason=Reason.POLICY_ERROR)

    def at_rest(self, limits: Limits, state: State) -> bool:
        """Return True if the last window had no calls and did not change the size."""
        return self._rests


def _checked(state: object, limits: Limits) -> State:
    if not isinstance(state, State):
        raise TypeError(f"a policy returns a hybridrt.policies.State, got {state!r}")
    if isinstance(state.workers, bool) or not isinstance(state.workers, int):
        raise TypeError(f"a state's workers must be an int, got {state.workers!r}")
    return replace(state, workers=limits.clamp(state.workers))
