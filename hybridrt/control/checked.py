"""A law of the user's own: checked when it is given, and not trusted afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from hybridrt.control.window import Limits, Policy, State, Window

__all__ = ["CheckedPolicy", "check_policy"]

_METHODS = ("start", "decide", "at_rest")


def check_policy(policy: object, names: Iterable[str]) -> None:
    """Refuse what cannot be a sizing policy.

    Args:
        policy: What came.
        names: Of the built-in policies, for the text of the error.

    Raises:
        TypeError: It lacks a part of `Policy`, or one is of another type.
        ValueError: Its interval or `governs` is out of range.
    """
    wanted = f"policy must be one of {', '.join(map(repr, names))}, or an object as `hybridrt.Policy` has it"
    if isinstance(policy, str):
        raise ValueError(f"{wanted}, got {policy!r}")
    if isinstance(policy, type):
        raise TypeError(f"{wanted}, got the class {policy.__name__}; give an instance of it")
    absent = [name for name in _METHODS if not callable(getattr(policy, name, None))]
    absent += [name for name in ("interval", "governs", "needs_moved") if not hasattr(policy, name)]
    if absent:
        raise TypeError(
            f"{wanted}, got {policy!r} without {', '.join(absent)}; inherit from `hybridrt.Policy`"
        )
    interval, governs = policy.interval, policy.governs  # type: ignore[attr-defined]  # looked for above
    if isinstance(interval, bool) or not isinstance(interval, (int, float)):
        raise TypeError(f"the interval of a policy is in seconds and must be a number > 0, got {interval!r}")
    if not 0.0 < interval < math.inf:
        raise ValueError(f"the interval of a policy is in seconds and must be a number > 0, got {interval!r}")
    if governs not in ("all", "waiting"):
        raise ValueError(f"governs of a policy must be 'all' or 'waiting', got {governs!r}")


class CheckedPolicy:
    """A user's policy, of which errors and impossible answers leave the size as it is.

    What it counts and needs, and how often it is asked, stays as it was at first.

    Args:
        policy: Has passed `check_policy`.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = type(policy).__name__
        self.interval = float(policy.interval)
        self.governs: Literal["all", "waiting"] = policy.governs
        self.needs_moved = bool(policy.needs_moved)
        self.error: Exception | None = None
        """What the last decision failed with; None while it works."""
        self.failures = 0
        """How many decisions failed."""

    def start(self, limits: Limits) -> State:
        """Return the first state.

        Raises:
            TypeError: The policy gave something else.
        """
        return _checked(self._policy.start(limits), "start", limits)

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        """Return the next state; the same one if the policy cannot tell."""
        try:
            after = _checked(self._policy.decide(limits, state, window), "decide", limits)
        except MemoryError:  # no fault of the policy: the governor waits until there is some
            raise
        except Exception as error:
            self.error = error
            self.failures += 1
            return state
        self.error = None
        return after

    def at_rest(self, limits: Limits, state: State) -> bool:
        """Return what the policy says; True if it fails, so that an idle process can sleep."""
        try:
            return bool(self._policy.at_rest(limits, state))
        except MemoryError:
            raise
        except Exception as error:
            self.error = error
            self.failures += 1
            return True


def _checked(state: object, method: str, limits: Limits) -> State:
    """Return the state with its size within the bounds."""
    if not isinstance(state, State):
        raise TypeError(f"{method} of a policy must return a hybridrt.State, got {state!r}")
    workers = state.workers
    if isinstance(workers, bool) or not isinstance(workers, int):
        raise TypeError(f"{method} of a policy must return a State whose workers is an int, got {workers!r}")
    clamped = limits.clamp(workers)
    return state if clamped == workers else replace(state, workers=clamped)
