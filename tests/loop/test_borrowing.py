"""What a limiter lets through, summed up from looks at it: the arithmetic, with time as an argument."""

from __future__ import annotations

import gc
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.control.window import Limits, Window
from hybridrt.loop.borrowing import Borrowing, Spent

NOTHING = Spent(cpu=0.0, process=0.0, switches=None)


class Holder:
    """Somebody who holds a token."""


def holders(count: int) -> list[Holder]:
    return [Holder() for _ in range(count)]


def close(borrowing: Borrowing, spent: Spent = NOTHING) -> Window:
    return borrowing.close(spent, Limits(lowest=40, highest=256, capacity=1.0, cores=2.0))


@pytest.fixture(autouse=True)
def _interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "getswitchinterval", lambda: 0.005)


# ---------------------------------------------------------------------- counts


def test_calls_are_counted_as_they_come_and_go() -> None:
    a, b, c = holders(3)
    borrowing = Borrowing(10.0)
    borrowing.note(10.01, 0.0, [a, b], 1)
    borrowing.note(10.02, 0.0, [b, c], 0)
    borrowing.note(10.10, 0.0, [c], 4)
    window = close(borrowing)
    assert (window.running, window.queued, window.completed) == (1, 4, 2)
    assert window.seconds == pytest.approx(0.1)


def test_the_next_window_counts_from_what_was_there() -> None:
    a, b = holders(2)
    borrowing = Borrowing(0.0)
    borrowing.note(0.1, 0.0, [a], 3)
    close(borrowing)
    borrowing.note(0.2, 0.0, [b], 2)
    window = close(borrowing)
    assert (window.running, window.queued, window.completed) == (1, 2, 1)
    assert window.seconds == pytest.approx(0.1)


def test_a_new_call_at_the_address_of_an_old_one_is_another_call() -> None:
    borrowing = Borrowing(0.0)
    for beat in range(1, 101):
        borrowing.note(beat / 100, 0.0, [Holder()], 0)
        gc.collect(0)
    assert close(borrowing).completed == 99


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=30))
def test_little_s_law_holds_in_each_window(beats: list[tuple[int, int]]) -> None:
    borrowing, now = Borrowing(0.0), 0.0
    crew = holders(20)
    for running, waiting in beats:
        now += 0.01
        borrowing.note(now, 0.0, crew[:running], waiting)
        window = close(borrowing)
        assert 0.0 <= window.busy <= 20.0
        assert window.wall == pytest.approx(window.busy * window.seconds)


def test_who_cannot_be_referred_to_weakly_is_counted_too() -> None:
    borrowing = Borrowing(0.0)
    borrowing.note(0.1, 0.0, [1, "two"], 0)
    borrowing.note(0.2, 0.0, [1], 0)
    assert (close(borrowing).completed, close_running(borrowing)) == (1, 1)


def close_running(borrowing: Borrowing) -> int:
    borrowing.note(0.3, 0.0, [1], 0)
    return close(borrowing).running


# ---------------------------------------------------------------------- the GIL and the cores


def beaten(late: float, spent: Spent, beats: int = 10, running: int = 40) -> Window:
    """Return a window of a tenth of a second in which all beats came `late`."""
    crew = holders(running)
    borrowing = Borrowing(0.0)
    for beat in range(beats + 1):
        borrowing.note(beat * 0.1 / beats, late, crew, 0)
    return close(borrowing, spent)


def test_calls_that_wait_are_certified_to_block() -> None:
    window = beaten(0.0005, Spent(cpu=0.001, process=0.002, switches=10))
    assert window.beta_certified == pytest.approx(1.0, abs=0.01)
    assert (window.gil_share, window.lane_cpu) == (0.0, pytest.approx(0.01))


def test_threads_that_wake_for_the_gil_are_not_certified_to_block() -> None:
    """Forty threads that wait for it wake two hundred times a second each."""
    window = beaten(0.2, Spent(cpu=0.1, process=0.1, switches=800))
    assert window.beta_certified == 0.0
    assert window.gil_share == 1.0


def test_one_late_beat_among_many_counts_for_its_length() -> None:
    crew = holders(1)
    borrowing = Borrowing(0.0)
    for now, late in ((0.01, 0.0), (0.02, 0.0), (1.0, 0.97), (1.01, 0.0)):
        borrowing.note(now, late, crew, 0)
    window = close(borrowing)
    assert window.gil_share == pytest.approx(0.98 / 1.01)


def test_many_short_waits_are_not_taken_for_waits_for_the_gil_when_the_loop_gets_it_at_once() -> None:
    window = beaten(0.0002, Spent(cpu=0.02, process=0.03, switches=2400))
    assert window.beta_certified is not None
    assert window.beta_certified > 0.8


def test_calls_that_get_little_cpu_time_but_keep_the_loop_waiting_fill_the_gil() -> None:
    """Half a core for the whole process, all of it the calls'."""
    window = beaten(0.1, Spent(cpu=0.05, process=0.05, switches=100))
    assert window.lane_cpu == pytest.approx(1.0)


def test_calls_beside_others_that_keep_the_loop_waiting_do_not() -> None:
    window = beaten(0.1, Spent(cpu=0.005, process=0.1, switches=100))
    assert window.lane_cpu == pytest.approx(0.05)


def test_without_clocks_the_whole_process_stands_in() -> None:
    window = beaten(0.0, Spent(cpu=None, process=0.05, switches=None))
    assert (window.cpu, window.lane_cpu) == (0.05, pytest.approx(0.5))
    assert window.beta_certified is None


def test_calls_that_began_together_tell_nothing_until_one_ends_or_some_time_has_passed() -> None:
    crew = holders(2)
    waiting, ending = Borrowing(0.0), Borrowing(0.0)
    for borrowing in (waiting, ending):
        borrowing.note(0.0, 0.0, crew, 0)
        borrowing.note(0.1, 0.0, crew, 0)
        close(borrowing)
    assert (waiting.is_blind(), ending.is_blind()) == (True, True)
    waiting.note(0.15, 0.0, crew, 0)
    ending.note(0.15, 0.0, crew[:1], 0)
    assert (waiting.is_blind(), ending.is_blind()) == (True, False)
    waiting.note(0.2, 0.0, crew, 0)
    close(ending)
    assert (waiting.is_blind(), ending.is_blind()) == (False, False)


# ---------------------------------------------------------------------- the knee


def test_the_knee_is_where_the_calls_together_fill_the_gil() -> None:
    """Each computes for 2 ms and blocks for 50 ms: 26 of them."""
    window = beaten(0.02, Spent(cpu=0.1, process=0.1, switches=0), running=26)
    assert window.knee == pytest.approx(26.0, rel=0.05)


def test_with_the_gil_free_the_cores_are_to_be_filled() -> None:
    window = beaten(0.0, Spent(cpu=0.1, process=0.1, switches=0), running=26)
    assert window.knee == pytest.approx(52.0, rel=0.05)


def test_a_wait_for_the_gil_does_not_move_the_knee() -> None:
    """A hundred calls that only compute, of which 99 wait for the GIL at any time."""
    window = beaten(0.5, Spent(cpu=0.1, process=0.1, switches=2000), running=100)
    assert window.knee == 1.0


def test_the_knee_of_calls_that_use_no_cpu_is_unknown() -> None:
    assert beaten(0.0, Spent(cpu=0.0, process=0.1, switches=0)).knee is None


def test_the_knee_remembers_that_calls_compute_while_all_of_them_block() -> None:
    """Calls that came together block together; the window that shows only that proves nothing."""
    crew = holders(40)
    borrowing = Borrowing(0.0)
    borrowing.note(0.0, 0.0, crew, 0)
    borrowing.note(0.1, 0.1, crew, 0)
    computing = close(borrowing, Spent(cpu=0.1, process=0.1, switches=800))
    borrowing.note(0.15, 0.0, crew, 0)
    blocking = close(borrowing, Spent(cpu=0.0, process=0.0, switches=0))
    assert computing.knee == 1.0
    assert blocking.knee is not None
    assert blocking.knee < 50
