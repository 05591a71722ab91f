"""One more GIL-free call that comes back from a wait may compute than there are cores."""

from __future__ import annotations

import pytest

from hybridrt.pool.permits import FREE, NONE, SHORT, Permits

from .support import Asking

CORES = 4


@pytest.fixture
def permits() -> Permits:
    """All cores are taken."""
    permits = Permits(gil=True, cores=CORES)
    for _ in range(CORES):
        permits.take(FREE)
    return permits


def test_a_call_that_comes_back_has_room_where_a_new_one_has_none(permits: Permits) -> None:
    assert permits.has_room_to_return(FREE, None)
    assert not permits.has_room(FREE)
    assert not permits.has_room_for_free(None)


def test_only_one_of_them_does(permits: Permits) -> None:
    permits.take(FREE)
    assert not permits.has_room_to_return(FREE, None)


def test_the_line_keeps_one_more_than_cores_busy(permits: Permits) -> None:
    permits.take(FREE)
    line = [Asking() for _ in range(3)]
    for asking in line:
        permits.ask(FREE, asking)
    permits.give_back(FREE)
    permits.give_back(FREE)
    assert [asking.permit for asking in line] == [FREE, FREE, NONE]
    assert permits.held[FREE] == CORES + 1


def test_calls_that_hold_the_gil_have_no_such_room() -> None:
    permits = Permits(gil=True, cores=CORES)
    permits.take(SHORT)
    assert not permits.has_room_to_return(SHORT, None)


def test_it_is_not_for_functions_that_need_the_gil_for_a_part(permits: Permits) -> None:
    assert not permits.has_room_to_return(FREE, 0.25)
    assert permits.has_room_to_return(FREE, 0.2)


def test_a_queued_call_whose_turn_it_is_has_the_room_that_was_left_for_it(permits: Permits) -> None:
    permits.take(FREE)
    permits.queued = {"a pool": None}
    line = [Asking() for _ in range(9)]
    for asking in line:
        permits.ask(FREE, asking)
    while not permits.left:
        permits.give_back(FREE)
    assert permits.held[FREE] == CORES
    assert permits.has_room_for_free(None)
    permits.take(FREE)
    assert not permits.has_room_for_free(None)
    permits.hand_on()
    assert permits.held[FREE] == CORES + 1
