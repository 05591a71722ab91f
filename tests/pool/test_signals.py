"""What a policy is shown of its lane."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any, Literal

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridrt.control.window import Limits, State, Window
from hybridrt.governor.signals import Sums, crowd_of, look_at_lane
from hybridrt.measure import host
from hybridrt.measure.host import Memory
from hybridrt.observe.functions import SETTLED, SLEEPS_NS
from hybridrt.pool.permits import LONG
from hybridrt.pool.state import Call
from hybridrt.pool.worker import WorkerThread
from hybridrt.values import Kind

from .shielding import FakeWatch
from .support import MS, Stage, named


class _Room:
    """A policy that has room for four."""

    interval = 3600.0
    governs: Literal["all", "waiting"] = "waiting"
    needs_moved: bool = False

    def start(self, limits: Limits) -> State:
        return State(workers=4)

    def decide(self, limits: Limits, state: State, window: Window) -> State:
        return state

    def at_rest(self, limits: Limits, state: State) -> bool:
        return True


def look(stage: Stage, seconds: float = 1.0, before: Sums | None = None) -> tuple[Window, Sums]:
    """Return the window that ends now, and the sums to begin the next with."""
    return look_at_lane(stage.pool, before or Sums(), stage.clock.now_ns, seconds)


def test_an_idle_pool_has_nothing_to_show_and_makes_nothing_up() -> None:
    window, _ = look(Stage())
    assert (window.queued, window.running, window.completed, window.busy) == (0, 0, 0, 0.0)
    assert window.beta_certified is window.gil_share is window.knee is None


@pytest.mark.parametrize("lanes", [True, False])
def test_the_busy_integral_counts_running_calls_too(lanes: bool) -> None:
    """Two calls for 0.4 s, of which one ended: 0.8 thread-seconds in a second."""
    stage = Stage(lanes=lanes, options={"policy": _Room()})
    ended, _ = stage.push_many(2, stage.learn(Kind.WAITING))
    stage.clock.advance(0.4)
    stage.end(ended)
    window, sums = look(stage)
    assert window.busy == pytest.approx(0.8)
    stage.clock.advance(0.5)
    assert look(stage, 0.5, sums)[0].busy == pytest.approx(1.0)


def test_what_went_or_stayed() -> None:
    stage = Stage(options={"policy": _Room()})
    first, *_ = stage.push_many(6, stage.learn(Kind.WAITING))  # four of them find room
    stage.end(first)
    window, sums = look(stage)
    assert (window.completed, window.running, window.queued) == (1, 4, 1)
    stage.push_many(2, stage.learn(Kind.WAITING))
    window, _ = look(stage, before=sums)
    assert (window.completed, window.running, window.queued) == (0, 4, 3)


def test_the_cpu_of_the_lanes_calls_that_still_run_counts_and_no_other_clock_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(options={"policy": _Room()})
    waiting, computing = stage.push(stage.learn(Kind.WAITING)), stage.push(stage.learn(Kind.LONG))
    stage.compute(waiting, computing)
    stage.clock.advance(0.5)
    read: list[WorkerThread] = []
    cpu_so_far = WorkerThread.cpu_so_far
    monkeypatch.setattr(
        WorkerThread, "cpu_so_far", lambda worker: (read.append(worker), cpu_so_far(worker))[1]
    )
    window, _ = look(stage)
    assert read == [stage.worker_of(waiting)]
    assert window.lane_cpu == pytest.approx(0.5)
    assert window.cpu == 0.0


def computing_sleeper(stage: Stage) -> Call:
    """Begin a call that computes, of a function that is known to sleep."""
    fn = stage.learn(Kind.WAITING)
    profile = stage.pool.profiles.of(fn)
    profile.settled, profile.cpu_mean_ns = SETTLED, SLEEPS_NS - 1
    call = stage.push(fn)
    stage.compute(call)
    return call


def test_the_clocks_of_calls_that_are_known_to_sleep_are_read_from_the_moment_they_compute() -> None:
    stage = Stage(options={"policy": _Room()})
    call = computing_sleeper(stage)
    stage.clock.advance(0.5)
    assert look(stage)[0].lane_cpu == 0.0
    stage.worker_of(call).permit = LONG
    assert look(stage)[0].lane_cpu == pytest.approx(0.5)


def test_cpu_time_that_comes_to_light_at_once_is_no_more_than_the_cores_can_give() -> None:
    stage = Stage(cores=2, options={"policy": _Room()})
    call = computing_sleeper(stage)
    stage.clock.advance(60.0)
    _, before = look(stage, 60.0)
    stage.clock.advance(0.05)
    stage.worker_of(call).permit = LONG
    assert look(stage, 0.05, before)[0].lane_cpu == 2.0


def finish(stage: Stage, wall: float, cpu: float, **asked: Any) -> None:
    """Let a waiting call end that was asked for its waits."""
    call = stage.push(stage.learn(Kind.WAITING))
    for name, value in asked.items():
        setattr(call, name, value)
    stage.compute(call)
    stage.clock.advance(cpu)
    stage.wait(call)
    stage.clock.advance(wall - cpu)
    stage.end(call)


def test_certified_beta_is_that_of_the_calls_that_were_asked() -> None:
    """100 ms, 20 of them CPU, 10 without a core; blocked four times, for 5 ms of GIL each at most."""
    stage = Stage(options={"policy": _Room()})
    stage.budget.gil_load.saw_interval(0, 4_900_000)  # and 0.1 ms until a timer ends it
    finish(stage, 0.1, 0.02, blocks=4, run_delay_ns=10_000_000)
    finish(stage, 0.1, 0.1)
    window, _ = look(stage)
    assert window.beta_certified == pytest.approx(0.5)


def test_without_a_gil_no_wait_counts_as_one_for_it() -> None:
    """100 ms, 20 of them CPU; blocked eighty times, for a millisecond each."""
    stage = Stage(gil=False, options={"policy": _Room()})
    finish(stage, 0.1, 0.02, blocks=80)
    assert look(stage)[0].beta_certified == pytest.approx(0.8)
    (profile,) = stage.pool.profiles.all()
    assert profile.detailed == (1, 20_000_000, 80_000_000, 0)


times = st.integers(0, 40_000_000)
histories = st.lists(
    st.tuples(times, times, st.lists(times, max_size=3), st.lists(st.floats(0.0, 1.0), max_size=6)),
    min_size=1,
    max_size=4,
)
"""Of calls: CPU time and waits for a core, then their own waits, and those for the GIL as shares of the
longest that it can be."""


@settings(deadline=None)
@given(interval_ns=st.integers(100_000, 5_000_000), calls=histories)
def test_certified_beta_is_never_above_the_true_one(interval_ns: int, calls: list[Any]) -> None:
    """G6, as long as no wait for the GIL is longer than one switch interval."""
    stage = Stage(options={"policy": _Room()})
    stage.budget.gil_load.saw_interval(0, interval_ns)
    longest = interval_ns + 100_000  # until a timer ends it
    walls = blocked = 0
    for cpu, run_delay, own, shares in calls:
        gil = [int(share * longest) for share in shares]
        wall = cpu + run_delay + sum(own) + sum(gil)
        finish(stage, wall / 1e9, cpu / 1e9, blocks=len(own) + len(gil), run_delay_ns=run_delay)
        walls += wall
        blocked += sum(own)
    certified = look(stage)[0].beta_certified
    assert certified is None or 0.0 <= certified <= blocked / walls + 1e-6


def test_a_call_that_never_waited_for_anything_was_not_blocked_whatever_the_clocks_say() -> None:
    stage = Stage(options={"policy": _Room()})
    finish(stage, 0.1, 0.02, blocks=0)
    assert look(stage)[0].beta_certified == 0.0


def test_the_governors_wakes_tell_how_contended_the_gil_was_in_the_window() -> None:
    stage = Stage()
    governor = stage.budget.governor
    for prompt, delay in ((True, 0), (False, 6_000_000), (False, 2_000_000), (True, 0)):
        stage.clock.advance(0.002)
        governor.step(stage.clock.now_ns, 0, prompt=prompt, delay_ns=delay)
    governor.step(stage.clock.now_ns, 0, prompt=False, slept=False)  # rung: it tells nothing
    window, sums = look(stage)
    assert window.gil_share == 0.5
    assert look(stage, before=sums)[0].gil_share is None


def test_the_delay_of_the_loop_that_suffers_most_is_told_as_a_multiple_of_what_it_may_be() -> None:
    stage = Stage()
    shield = stage.budget.shield
    assert look(stage)[0].loop_lateness is None
    calm, late = FakeWatch(target=0.004), FakeWatch(target=0.002)
    shield.join(calm)
    shield.join(late)
    calm.late, late.late = 0.001, 0.005
    stage.clock.advance(1.0)
    shield.step(stage.clock.now_ns, (stage.pool,))
    assert look(stage)[0].loop_lateness == pytest.approx(2.5)
    shield.leave(calm)
    shield.leave(late)
    stage.clock.advance(1.0)
    shield.step(stage.clock.now_ns, (stage.pool,))
    assert look(stage)[0].loop_lateness is None


@pytest.mark.parametrize(
    ("free", "taken", "gil", "knee"),
    [
        pytest.param(0, 0, True, 5.0, id="one GIL has room for five"),
        pytest.param(8, 0, True, 10.0, id="two cores for ten, as none of them needs the GIL"),
        pytest.param(2, 6, True, 20 / 3, id="three quarters of the GIL each"),
        pytest.param(0, 0, False, 10.0, id="two cores without a GIL"),
    ],
)
def test_the_knee_is_where_gil_or_cores_are_just_full(free: int, taken: int, gil: bool, knee: float) -> None:
    stage = Stage(gil=gil, options={"policy": _Room()})
    fn = stage.learn(Kind.WAITING)
    profile = stage.pool.profiles.of(fn)
    profile.cpu_mean_ns, profile.wait_mean_ns, profile.corrected = 2_000_000, 8_000_000, True
    for _ in range(free):
        profile.gil.saw_free()
    for _ in range(taken):
        profile.gil.saw_taken(1_000_000, 1_000_000)
    stage.push(fn)
    assert look(stage)[0].knee == pytest.approx(knee)


def test_functions_of_which_only_raw_times_are_known_give_no_knee() -> None:
    stage = Stage()
    stage.push(named("unknown"))
    assert look(stage)[0].knee is None


def test_the_memory_in_use_is_looked_at_every_two_seconds_unless_the_gil_is_wanted() -> None:
    stage = Stage()
    stage.step(MS)
    assert 0.0 < (look(stage)[0].memory or 0.0) < 1.0
    stage.budget.memory = Memory(limit=1, given=1, share=2.0)
    stage.step(1998 * MS)
    assert look(stage)[0].memory == 2.0
    stage.step(30 * MS, prompt=False)
    assert look(stage)[0].memory == 2.0
    stage.step(3 * MS)
    assert look(stage)[0].memory != 2.0


def test_a_memory_in_use_that_cannot_be_read_is_absent_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(psutil, "virtual_memory", fail)
    monkeypatch.setattr(host, "_lines", lambda _: [])
    stage = Stage()
    stage.step(MS)
    assert look(stage)[0].memory is None
    monkeypatch.undo()
    stage.step(2001 * MS)
    assert 0.0 < (look(stage)[0].memory or 0.0) < 1.0


def test_the_crowd_at_the_gil_is_what_runs_less_what_is_blocked() -> None:
    """Six calls ran for 8 s in sum; two ended, and each of those was blocked for 1.5 s of its time."""
    stage = Stage(options={"policy": _Room()})
    fn = stage.learn(Kind.WAITING)
    profile = stage.pool.profiles.of(fn)
    profile.wait_mean_ns = 1_500_000_000
    stage.push(fn)
    window, _ = look(stage)
    window = replace(window, busy=8.0, completed=2, seconds=1.0)
    assert crowd_of(stage.pool, window) == pytest.approx(5.0)
    for _ in range(6):
        profile.gil.saw_free()
    for _ in range(6):
        profile.gil.saw_taken(1_000_000, 1_000_000)
    assert crowd_of(stage.pool, window) == pytest.approx(2.5)
    assert crowd_of(stage.pool, replace(window, completed=0)) == 0.0
