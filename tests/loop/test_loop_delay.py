"""Loop delay: how late a timer fires, weighted by the time it stands for."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt import Runtime
from hybridrt.measure.heartbeat import SETTLED, Heartbeat
from hybridrt.observe.loop_delay import DelayWindow

from .support import eventually

lateness = st.floats(0.0, 10.0)
periods = st.sampled_from([0.010, 0.200])


def window(beats: list[tuple[float, float]], **options: float) -> DelayWindow:
    """Return a window after `beats` of (lateness, period), one after the other."""
    window, now = DelayWindow(**options), 0.0  # type: ignore[arg-type]
    for late, period in beats:
        now += period + late
        window.record(now, late, period)
    return window


# ---------------------------------------------------------------------- the arithmetic


def test_there_is_no_delay_before_the_first_beat() -> None:
    assert DelayWindow().summary() is None


@given(st.lists(st.tuples(lateness, periods), min_size=1))
def test_the_percentiles_are_in_order_and_were_seen(beats: list[tuple[float, float]]) -> None:
    delay = window(beats, window=1e9).summary()
    assert delay is not None
    assert 0.0 <= delay.p50 <= delay.p99 <= delay.max == max(late for late, _ in beats)
    assert {delay.p50, delay.p99} <= {late for late, _ in beats}
    assert delay.window == pytest.approx(sum(late + period for late, period in beats))


@given(st.integers(1, 500), st.floats(0.0, 0.001), st.floats(0.1, 100.0))
def test_one_stall_counts_for_its_length(others: int, small: float, stall: float) -> None:
    """However many beats were in time, a stall of more than half of the time is the median."""
    delay = window([(small, 0.010)] * others + [(stall, 0.010)], window=1e9).summary()
    assert delay is not None
    rest = others * (0.010 + small)
    if stall > rest:
        assert delay.p50 == stall
    if stall < rest * 0.9:
        assert delay.p50 == small
    if stall > 0.02 * rest:
        assert delay.p99 == stall


def test_a_stall_of_one_second_in_a_hundred_is_no_outlier() -> None:
    """A thousand beats in time and one late by 10 s: by number 0.1 %, by time one half."""
    delay = window([(0.0, 0.010)] * 1000 + [(10.0, 0.010)]).summary()
    assert delay is not None
    assert (delay.p50, delay.p99, delay.max) == (10.0, 10.0, 10.0)


def test_beats_older_than_the_window_are_forgotten() -> None:
    delay = window([(5.0, 0.010), *[(0.001, 0.010)] * 200], window=1.0).summary()
    assert delay is not None
    assert delay.max == 0.001
    assert delay.window <= 1.1


def test_once_all_beats_are_older_than_the_window_there_is_no_delay() -> None:
    delays = window([(5.0, 0.010)], window=1.0)
    assert delays.summary(5.5) == delays.summary()
    assert delays.summary(6.5) is None


def test_a_stall_that_lasts_longer_than_the_window_is_all_of_the_delay() -> None:
    delay = window([(0.001, 0.010)] * 10, window=1.0).summary(5.0, overdue=4.0)
    assert delay is not None
    assert (delay.p50, delay.max) == (4.0, 4.0)


def test_no_more_beats_are_kept_than_the_size() -> None:
    delay = window([(0.5, 0.010), *[(0.001, 0.010)] * 10], size=10).summary()
    assert delay is not None
    assert delay.max == 0.001


def test_a_stall_that_lasts_counts_before_it_ends() -> None:
    delays = window([(0.001, 0.010)] * 100)
    now = 100 * 0.011
    assert delays.p99(now) == 0.001
    assert delays.p99(now + 0.5, overdue=0.5) == 0.5


def test_the_recent_percentile_leaves_one_percent_of_the_time_above_it() -> None:
    one, five = ([(0.0, 1.0)] * (101 - late) + [(1e-9, 1.0)] * late for late in (1, 5))
    assert window(one, window=1e9).p99(1000.0) == 0.0 < window(five, window=1e9).p99(1000.0)


def test_the_recent_percentile_forgets_what_is_old() -> None:
    delays = window([(5.0, 0.010), (0.001, 0.010)], window=1.0)
    assert delays.p99(5.02) == 5.0
    assert delays.p99(6.015) == 0.001
    assert delays.p99(60.0) == 0.0


# ---------------------------------------------------------------------- the heartbeat


class Timer:
    def __init__(self, loop: Loop, delay: float, callback: Callable[[], None]) -> None:
        self.loop, self.delay, self.callback = loop, delay, callback

    def cancel(self) -> None:
        self.loop.timers.remove(self)


class Loop:
    """A loop and its clock, which the test moves: timers fire as late as it says."""

    def __init__(self) -> None:
        self.now = 100.0
        self.used_ns = 1_000_000_000
        self.timers: list[Timer] = []

    def call_later(self, delay: float, callback: Callable[[], None], *, context: Context) -> Timer:
        self.timers.append(Timer(self, delay, callback))
        return self.timers[-1]

    def fire(self, late: float = 0.0, used: float = 0.002) -> None:
        """Let the timer fire, on a thread that has computed for `used` seconds meanwhile."""
        timer = self.timers.pop()
        self.now += timer.delay + late
        self.used_ns += int(used * 1e9)
        timer.callback()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(time, "perf_counter", lambda: loop.now)
    monkeypatch.setattr(time, "thread_time_ns", lambda: loop.used_ns)
    return loop


Record = tuple[float, float, float]


def beating(loop: Loop, busy: list[bool]) -> tuple[Heartbeat, list[Record]]:
    """Return a heartbeat that was started and what it records; `busy[0]` may change."""
    records: list[Record] = []
    heartbeat = Heartbeat(
        loop,  # type: ignore[arg-type]  # all of a loop that it uses
        lambda *record: records.append(record),
        lambda: busy[0],
        period=0.01,
        idle_period=0.2,
    )
    heartbeat.start()
    return heartbeat, records


def test_each_beat_reports_its_lateness(loop: Loop) -> None:
    _, records = beating(loop, [True])
    for late in (0.0, 0.5, 0.001):
        loop.fire(late)
    assert [late for _, late, _ in records] == pytest.approx([0.0, 0.5, 0.001])
    assert {period for *_, period in records} == {0.01}
    assert records[-1][0] == loop.now


def test_a_timer_that_fires_early_is_not_late(loop: Loop) -> None:
    _, records = beating(loop, [True])
    loop.fire(-0.001)
    assert records[0][1] == 0.0


def test_it_beats_fast_while_there_is_work_and_slowly_otherwise(loop: Loop) -> None:
    busy = [False]
    _, records = beating(loop, busy)
    loop.fire()
    busy[0] = True
    loop.fire()
    loop.fire()
    busy[0] = False
    loop.fire()
    loop.fire()
    assert [period for *_, period in records] == [0.2, 0.2, 0.01, 0.01, 0.2]


def test_work_that_lasts_is_measured_less_often_until_it_has_paused(loop: Loop) -> None:
    busy = [True]
    heartbeat, records = beating(loop, busy)
    for _ in range(SETTLED + 2):
        loop.fire()
    heartbeat.quicken()
    busy[0] = False
    loop.fire()
    busy[0] = True
    loop.fire()
    loop.fire()
    steady = [0.025, 0.025, 0.025]
    assert [period for *_, period in records] == [0.01] * SETTLED + steady + [0.2, 0.01]


def test_on_a_loop_that_rests_it_beats_more_slowly_until_that_does_something(loop: Loop) -> None:
    _, records = beating(loop, [False])
    loop.fire(used=0.0005)
    loop.fire(used=0.0005)
    loop.fire(used=0.005)
    loop.fire()
    assert [period for *_, period in records] == [0.2, 0.5, 0.5, 0.2]


def test_quickened_it_beats_fast_at_once(loop: Loop) -> None:
    busy = [False]
    heartbeat, records = beating(loop, busy)
    loop.fire()
    busy[0] = True
    loop.now += 0.1
    heartbeat.quicken()
    (timer,) = loop.timers
    assert timer.delay == 0.01
    loop.fire(0.3)
    assert records[-1][1:] == (pytest.approx(0.3), 0.01)


def test_quickened_while_it_beats_fast_it_keeps_its_time(loop: Loop) -> None:
    heartbeat, _ = beating(loop, [True])
    before = loop.timers.copy()
    heartbeat.quicken()
    assert loop.timers == before


def test_a_stall_that_ends_a_rest_is_counted(loop: Loop) -> None:
    busy = [False]
    heartbeat, records = beating(loop, busy)
    busy[0] = True
    loop.now += 0.5
    heartbeat.quicken()
    assert records == [(loop.now, pytest.approx(0.3), 0.2)]
    assert [timer.delay for timer in loop.timers] == [0.01]


def test_a_beat_that_does_not_come_is_overdue(loop: Loop) -> None:
    heartbeat, _ = beating(loop, [True])
    assert heartbeat.overdue(loop.now) == 0.0
    assert heartbeat.overdue(loop.now + 0.5) == pytest.approx(0.49)
    heartbeat.stop()
    assert heartbeat.overdue(loop.now + 0.5) == 0.0


def test_a_beat_that_cannot_be_recorded_is_not_the_last(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat, records = beating(loop, [True])

    def fail(*record: float) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(heartbeat, "_record", fail)
        with pytest.raises(MemoryError):
            loop.fire()
    assert heartbeat.overdue(loop.now + 0.01) == 0.0
    loop.fire()
    assert len(records) == 1


def test_after_stop_it_beats_no_more(loop: Loop) -> None:
    heartbeat, _ = beating(loop, [True])
    heartbeat.stop()
    assert loop.timers == []
    heartbeat.stop()


# ---------------------------------------------------------------------- for real


@pytest.mark.slow
async def test_a_real_stall_shows_in_the_statistics() -> None:
    async with Runtime() as runtime:
        await eventually(lambda: runtime.statistics().loop_delay is not None)
        until = time.perf_counter() + 0.3
        while time.perf_counter() < until:  # the loop stands still: a beat was due within 0.5 s
            pass
        await eventually(lambda: _max(runtime) >= 0.05)


def _max(runtime: Runtime) -> float:
    delay = runtime.statistics().loop_delay
    return 0.0 if delay is None else delay.max
