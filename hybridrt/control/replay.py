"""Run recorded windows through a policy again: the same windows give the same sizes.

A policy is a pure function, so a log of windows explains a size completely, on another machine and
after the fact. Only from the first window, or from the state before the first one kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from hybridrt.control.knee import DemandState, Trial
from hybridrt.control.throughput import Phase, ThroughputState
from hybridrt.control.window import Limits, Policy, State, Window
from hybridrt.values import Reason

__all__ = ["Recording", "replay"]


def replay(
    policy: Policy, limits: Limits, windows: Iterable[Window], start: State | None = None
) -> list[State]:
    """Return the state after each window.

    Args:
        policy: The policy that decided.
        limits: The bounds it had.
        windows: What it was given, oldest first.
        start: The state before the first of them; None: the one that the policy starts with.
    """
    state = policy.start(limits) if start is None else start
    states = []
    for window in windows:
        state = policy.decide(limits, state, window)
        states.append(state)
    return states


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Windows to be stored and replayed.

    Attributes:
        limits: The bounds the policy had.
        windows: What it was given, oldest first.
        start: The state before the first; None: the one that the policy starts with.
        sizes: What was decided in each window, if that was recorded too.
    """

    limits: Limits
    windows: Sequence[Window]
    start: State | None = None
    sizes: Sequence[int] = ()

    def replay(self, policy: Policy) -> list[State]:
        """Return the state after each window."""
        return replay(policy, self.limits, self.windows, self.start)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as dicts, lists and numbers, ready for `json.dumps`."""
        return {
            "limits": asdict(self.limits),
            "windows": [asdict(window) for window in self.windows],
            "start": None if self.start is None else asdict(self.start),
            "sizes": list(self.sizes),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recording:
        """Return what `to_dict` was called on; inputs that windows had in earlier versions are left out.

        Raises:
            ValueError: The first state is of a class that is not the package's.
        """
        return cls(
            limits=Limits(**data["limits"]),
            windows=tuple(_load_window(window) for window in data["windows"]),
            start=None if data["start"] is None else _load_state(data["start"]),
            sizes=tuple(data.get("sizes", ())),
        )


def _load_window(data: Mapping[str, Any]) -> Window:
    return Window(**{field.name: data[field.name] for field in fields(Window) if field.name in data})


def _load_state(data: Mapping[str, Any]) -> State:
    values = {**data, "reason": Reason(data["reason"])}
    if "phase" in values and "rate" in values:
        return ThroughputState(**{**values, "phase": Phase(values["phase"])})
    if "trial" not in values:
        if beyond := values.keys() - {field.name for field in fields(State)}:
            raise ValueError(
                f"the first state is of a policy of your own, with {', '.join(sorted(beyond))}: "
                "load it yourself, and give it to `hybridrt.control.replay.replay` with limits and windows"
            )
        return State(**values)
    return DemandState(**{**values, "trial": Trial(values["trial"]), "tried": Trial(values["tried"])})
