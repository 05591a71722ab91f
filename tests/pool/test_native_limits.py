"""Threads of BLAS libraries are bounded while several calls that leave the GIL compute at once."""

from __future__ import annotations

import os

import pytest

from hybridrt import Runtime
from hybridrt.executor.budget import shared
from hybridrt.isolates.process import _environment
from hybridrt.pool.native_limits import VARIABLES, NativeLimits

S = 1_000_000_000


class Library:
    """A library and the numbers that were set."""

    def __init__(self, threads: int) -> None:
        self.num_threads = threads

    def set_num_threads(self, num_threads: int) -> None:
        self.num_threads = num_threads


class Strange(Library):
    """A library of which nothing can be set."""

    def set_num_threads(self, num_threads: int) -> None:
        raise OSError("an unknown version")


def limits(**libraries: Library) -> NativeLimits:
    """Return the bounds of a process with these libraries."""
    return NativeLimits(libraries.items, wanted=True)


@pytest.mark.parametrize(("at_once", "threads"), [(2, 4), (3, 2), (4, 2), (8, 1), (20, 1)])
def test_each_call_may_use_its_share_of_the_cores(at_once: int, threads: int) -> None:
    blas = Library(8)
    limits(blas=blas).step(0, at_once, cores=8)
    assert blas.num_threads == threads


def test_a_single_call_keeps_all_threads() -> None:
    blas = Library(8)
    bounds = limits(blas=blas)
    bounds.step(0, 1, cores=8)
    assert (blas.num_threads, bounds.bound) == (8, None)


def test_threads_come_back_once_calls_come_one_at_a_time_and_not_between_two_calls() -> None:
    blas = Library(8)
    bounds = limits(blas=blas)
    seen = []
    for now, at_once in ((0, 8), (S // 2, 1), (S - 1, 8), (S + S // 2, 0), (2 * S, 1)):
        bounds.step(now, at_once, cores=8)
        seen.append(blas.num_threads)
    assert seen == [1, 1, 1, 1, 8]


def test_no_library_gets_more_threads_than_it_had() -> None:
    blas, small = Library(8), Library(1)
    limits(blas=blas, small=small).step(0, 2, cores=8)
    assert (blas.num_threads, small.num_threads) == (4, 1)


def test_a_number_that_somebody_else_sets_meanwhile_stays() -> None:
    blas = Library(8)
    bounds = limits(blas=blas)
    bounds.step(0, 8, cores=8)
    blas.num_threads = 3
    bounds.step(S // 2, 4, cores=8)
    bounds.restore()
    assert blas.num_threads == 3


def test_a_library_that_is_loaded_later_is_bounded_too() -> None:
    libraries = {"first": Library(8)}
    bounds = NativeLimits(libraries.items, wanted=True)
    bounds.step(0, 8, cores=8)
    libraries["second"] = Library(8)
    for now in range(S // 2, 6 * S, S // 2):
        bounds.step(now, 8, cores=8)
    assert libraries["second"].num_threads == 1
    bounds.restore()
    assert [library.num_threads for library in libraries.values()] == [8, 8]


def test_a_library_that_cannot_be_set_hurts_no_other() -> None:
    blas = Library(8)
    limits(strange=Strange(8), blas=blas).step(0, 8, cores=8)
    assert blas.num_threads == 1


def test_threads_are_left_alone_while_a_runtime_refuses() -> None:
    blas = Library(8)
    bounds = limits(blas=blas)
    bounds.step(0, 8, cores=8)
    bounds.refuse()
    bounds.step(1, 8, cores=8)
    assert blas.num_threads == 8
    bounds.allow()
    bounds.step(2, 8, cores=8)
    assert blas.num_threads == 1


def test_in_a_forked_child_no_runtime_refuses_and_one_that_is_closed_there_hurts_nothing() -> None:
    blas = Library(8)
    bounds = limits(blas=blas)
    bounds.refuse()
    bounds.start_clean()
    assert bounds.active
    bounds.allow()
    bounds.step(0, 8, cores=8)
    assert blas.num_threads == 1


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDRT_GOVERN_NATIVE", "0")
    assert not NativeLimits(dict[str, Library]().items).active


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("unset")
async def test_isolates_have_one_thread_for_a_call_unless_a_runtime_refuses_or_the_program_says_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared.native_limits, "_wanted", True)
    async with Runtime():
        assert [_environment()[name] for name in VARIABLES] == ["1"] * 4
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        assert _environment()["OMP_NUM_THREADS"] == "3"
    async with Runtime(govern_native=False):
        assert _environment() == dict(os.environ)
    assert _environment()["OPENBLAS_NUM_THREADS"] == "1"


def test_a_step_says_when_it_begins_to_bound() -> None:
    bounds = limits(blas=Library(8))
    assert [bounds.step(now, 8, cores=8) for now in (0, 1)] == [True, False]


def test_without_libraries_nothing_is_bounded() -> None:
    bounds = limits()
    assert not bounds.step(0, 8, cores=8)
    assert bounds.bound is None


def test_control_of_a_library_that_goes_to_who_sets_its_threads_is_let_go() -> None:
    class Controlled(Library):
        held = False

        def set_num_threads(self, num_threads: int) -> None:
            super().set_num_threads(num_threads)
            self.held = True

        def clear_controlling_thread(self) -> None:
            self.held = False

    blas = Controlled(8)
    bounds = limits(blas=blas)
    bounds.step(0, 4, cores=8)
    assert (blas.num_threads, blas.held) == (2, False)
    bounds.restore()
    assert (blas.num_threads, blas.held) == (8, False)
