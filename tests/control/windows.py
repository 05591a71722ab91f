"""Windows, states and limits for the tests of the policies."""

from __future__ import annotations

from hypothesis import strategies as st

from hybridrt.control.window import Limits, Policy, State, Window

__all__ = ["LIMITS", "limits", "run_policy", "window", "windows"]

LIMITS = Limits(lowest=1, highest=256)


def window(
    *,
    queued: int = 0,
    running: int = 0,
    completed: int = 1,
    beta: float | None = 0.9,
    lane_cpu: float = 0.0,
) -> Window:
    """Return a window of one second of wall time with the given blocking ratio; None: no call ended."""
    wall = 0.0 if beta is None else 1.0
    return Window(
        seconds=0.5,
        queued=queued,
        running=running,
        completed=0 if beta is None else completed,
        wall=wall,
        cpu=0.0 if beta is None else 1.0 - beta,
        lane_cpu=lane_cpu,
    )


def run_policy(policy: Policy, limits: Limits, state: State, windows: list[Window]) -> list[State]:
    """Return the state after each window."""
    states = []
    for one in windows:
        state = policy.decide(limits, state, one)
        states.append(state)
    return states


_seconds = st.floats(min_value=0.0, max_value=1e4, allow_nan=False)

_share = st.floats(min_value=0.0, max_value=1.0)

windows = st.builds(
    Window,
    seconds=st.floats(min_value=0.01, max_value=60.0),
    queued=st.integers(0, 1000),
    running=st.integers(0, 300),
    completed=st.integers(0, 10_000),
    wall=_seconds,
    cpu=_seconds,
    busy=st.floats(min_value=0.0, max_value=300.0),
    lane_cpu=st.floats(min_value=0.0, max_value=64.0),
    beta_certified=st.none() | _share,
    gil_share=st.none() | _share,
    knee=st.none() | st.floats(min_value=1.0, max_value=1e5),
    loop_lateness=st.none() | st.floats(min_value=0.0, max_value=1e3),
    memory=st.none() | st.floats(min_value=0.0, max_value=1.5),
    moved=st.none() | st.floats(min_value=0.0, max_value=1e10),
)


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    """Draw bounds with at least one worker."""
    lowest = draw(st.integers(1, 300))
    highest = draw(st.integers(lowest, 600))
    return Limits(lowest=lowest, highest=highest, capacity=draw(st.sampled_from([1.0, 2.0, 8.0])))
