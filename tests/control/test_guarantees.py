"""What the sizing law promises, for any load: growth in time, bounded losses, release, bounded cost.

| | promise | where it is tested |
|---|---|---|
| G1 | a size within its bounds, growth only for a queue or to undo an experiment | `test_demand` |
| G2 | no growth while GIL or cores are full, calls hardly block, or memory is short | `test_demand` |
| G3 | what is wanted in 2 + log2(wanted / 16) steps and 1.5 s from the start | here, `test_closed_loop` |
| G4 | fewer threads kept only if they cost less than 15 %, at small cost | here, `test_closed_loop` |
| G5 | while all workers block and calls are queued, the size doubles | `test_demand` |
| G6 | the certified blocking ratio is never above the true one | `tests/pool/test_signals` |
| G7 | without demand the size comes down; surplus threads leave | here, `tests/pool/test_workers` |
| G8 | ten minutes of the same load do not move the size | `test_closed_loop` |
| G9 | the decision log replays to the same sizes | `test_replay` |
| G10 | a decision takes a bounded number of steps and leaves no memory behind | here |

That computing calls never exceed their permits, the other half of G2, is tested in `tests/pool`.
"""

from __future__ import annotations

import gc
import math
import sys
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridrt.control.demand import DemandPolicy
from hybridrt.control.knee import DemandState, Trial
from hybridrt.control.window import Limits, State, Window

from .windows import LIMITS, limits, run_policy, windows

POLICY = DemandPolicy()
TICK = 0.05
QUIET = Window(seconds=0.25, queued=0, running=0, completed=0, wall=0.0, cpu=0.0)
LOADS = ((0.005, 8), (0.02, 20), (0.05, 60), (0.1, 120))
any_load = settings(max_examples=40, deadline=None)


class Plant:
    """Constant calls of which `knee` at most proceed at once; the others that run wait for those.

    Args:
        service: Seconds a call takes alone.
        knee: How many proceed.
        calls: How many are there all the time, queued or running.
    """

    def __init__(self, service: float, knee: int, calls: int) -> None:
        self.service, self.knee, self.calls = service, knee, calls
        self._clock = self._owed = 0.0

    def window(self, workers: int) -> Window:
        """Run one tick."""
        running = min(workers, self.calls)
        self._clock += TICK
        rate = min(running, self.knee) / self.service
        if self._clock >= self.service:
            self._owed += rate * TICK
        done, self._owed = int(self._owed), self._owed % 1.0
        return Window(
            seconds=TICK,
            queued=self.calls - running,
            running=running,
            completed=done,
            wall=done * running / rate,
            cpu=0.0,
            busy=float(running),
        )


def govern(plant: Plant, seconds: float) -> Iterator[tuple[DemandState, Window]]:
    """Yield each window and the decision on it."""
    state = POLICY.start(LIMITS)
    for _ in range(round(seconds / TICK)):
        window = plant.window(state.workers)
        state = POLICY.decide(LIMITS, state, window)
        yield state, window


# ---------------------------------------------------------------------- G3: growth


@any_load
@given(service=st.floats(0.001, 0.1), wanted=st.integers(9, 256))
def test_a_cold_pool_gets_to_what_is_wanted_in_few_steps_and_a_second_and_a_half(
    service: float, wanted: int
) -> None:
    sizes = [state.workers for state, _ in govern(Plant(service, knee=wanted, calls=wanted), 1.5)]
    steps = len({size for size in sizes if size > POLICY.first})
    assert sizes[-1] >= wanted
    assert steps <= 2 + max(0, math.ceil(math.log2(wanted / 16)))


# ---------------------------------------------------------------------- G4: experiments


@any_load
@given(kept=st.floats(0.2, 0.85), size=st.integers(4, 250), rate=st.floats(20.0, 5000.0))
def test_fewer_threads_that_cost_more_than_a_seventh_of_the_throughput_are_not_kept(
    kept: float, size: int, rate: float
) -> None:
    fewer = max(1, size // 2)
    state = DemandState(
        workers=fewer, trial=Trial.FEWER, before=size, best=rate, alone=size / rate, alone_at=4, patience=4.0
    )
    owed, seen = 0.0, 0
    while state.trial and seen < 400:
        seen, owed = seen + 1, owed + kept * rate * TICK
        done, owed = int(owed), owed % 1.0
        wall = done * fewer / (kept * rate)
        window = Window(
            seconds=TICK, queued=500, running=fewer, completed=done, wall=wall, cpu=0.0, busy=float(fewer)
        )
        state = POLICY.decide(LIMITS, state, window)
    assert state.workers > fewer
    assert seen * TICK <= 10.0


@pytest.mark.slow
@pytest.mark.parametrize(("service", "knee"), LOADS)
def test_experiments_cost_a_twentieth_of_the_throughput_at_most_and_end_near_the_knee(
    service: float, knee: int
) -> None:
    """After the first ten seconds, over half a minute in which nothing changes."""
    seen = list(govern(Plant(service, knee, calls=4 * knee + 20), 40.0))[200:]
    done = sum(window.completed for _, window in seen) / 30.0
    assert done >= 0.95 * knee / service
    sizes = sorted(state.workers for state, _ in seen)
    assert sizes[len(sizes) // 2] <= 3 * knee


@pytest.mark.slow
@pytest.mark.parametrize(("service", "knee"), LOADS)
def test_the_longer_nothing_changes_the_rarer_fewer_threads_are_tried(service: float, knee: int) -> None:
    trials = [state.trial for state, _ in govern(Plant(service, knee, calls=4 * knee + 20), 90.0)]
    begun = [
        i for i in range(1, len(trials)) if trials[i] is Trial.FEWER and trials[i - 1] is not Trial.FEWER
    ]
    assert sum(i >= 900 for i in begun) <= 3


# ---------------------------------------------------------------------- G7: release


@any_load
@given(service=st.floats(0.001, 0.1), knee=st.integers(2, 250), seconds=st.floats(0.1, 3.0))
def test_without_demand_the_size_is_back_within_twenty_five_seconds(
    service: float, knee: int, seconds: float
) -> None:
    """Ten of the longest experiment, and two buckets of five in which the peak is held."""
    busy = [state for state, _ in govern(Plant(service, knee, calls=300), seconds)][-1]
    quiet = run_policy(POLICY, LIMITS, busy, [QUIET] * 100)
    assert quiet[-1].workers <= POLICY.first
    assert POLICY.at_rest(LIMITS, quiet[-1])


# ---------------------------------------------------------------------- G10: cost


def count_calls(bounds: Limits, state: State, window: Window) -> int:
    """Return how many Python functions a decision calls."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        POLICY.decide(bounds, state, window)
    finally:
        sys.setprofile(before)
    return calls


@any_load
@given(limits(), st.lists(windows, max_size=20), windows)
def test_a_decision_takes_a_bounded_number_of_steps(bounds: Limits, seen: list[Window], last: Window) -> None:
    """However many calls ended, are queued or run, and however long it has all been going on."""
    state: State = [POLICY.start(bounds), *run_policy(POLICY, bounds, POLICY.start(bounds), seen)][-1]
    assert count_calls(bounds, state, last) <= 100


@pytest.mark.parametrize("knee", [8, 200])
def test_two_minutes_of_decisions_leave_nothing_behind(knee: int) -> None:
    def go(seconds: float) -> None:
        for _ in govern(Plant(0.02, knee, calls=500), seconds):
            pass

    go(5.0)  # some things are made once
    gc.collect()
    tracemalloc.start()
    try:
        go(120.0)
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 4096
