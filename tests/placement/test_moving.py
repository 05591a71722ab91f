"""A function moves to another place when its calls change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hybridrt.control.placement import AGAIN
from hybridrt.errors import NotPortableError
from hybridrt.isolates.round_trip import RoundTrip
from hybridrt.loop.router import Router
from hybridrt.loop.size_class import SizeClass
from hybridrt.placements import PlacementReason
from hybridrt.values import GilClass, Kind

SIZE = (4, 0, 0)
MS = 1_000_000
BUSY: Any = {"call_ns": 30 * MS, "carry_ns": MS // 5}
SPARSE: Any = {**BUSY, "start_ns": 400 * MS}
HOLDS: Any = SimpleNamespace(
    kind=None,
    gil=SimpleNamespace(name=lambda waits: GilClass.HOLDS),
    leaves_gil=False,
    wait_mean_ns=0,
)
WAITS: Any = SimpleNamespace(**{**vars(HOLDS), "kind": Kind.WAITING, "wait_mean_ns": 200 * MS})
PORT: Any = SimpleNamespace(pool=SimpleNamespace(budget=SimpleNamespace(cores=2, gil=True)))


def carry(
    router: Router,
    size_class: SizeClass,
    calls: int,
    *,
    call_ns: int,
    carry_ns: int,
    start_ns: int = 0,
    wait_ns: int = 0,
    really_waits: bool = False,
    profile: Any = HOLDS,
) -> int:
    """Make calls where they are placed, and return how many were carried.

    Args:
        router: Of the function.
        size_class: Of the calls.
        calls: How many.
        call_ns: What one computes, in a thread as in an isolate.
        carry_ns: What carrying one takes, on each way.
        start_ns: What starting an isolate for each takes.
        wait_ns: What one waits in an isolate.
        really_waits: One waits for that in a thread, too.
        profile: Of the function.
    """
    carried = 0
    for _ in range(calls):
        if router.choose(size_class) == "thread":
            size_class.worked(call_ns + really_waits * wait_ns, call_ns)
            router._judge(size_class, SIZE, PORT, profile)
        else:
            carried += 1
            round_trip = RoundTrip(
                wall_ns=start_ns + call_ns + wait_ns + 2 * carry_ns,
                host_cpu_ns=carry_ns,
                child_wall_ns=call_ns + wait_ns,
                child_cpu_ns=call_ns,
                cold=start_ns > 0,
            )
            router.crossed(size_class, SIZE, PORT, profile, round_trip)
    return carried


@pytest.fixture
def router() -> Router:
    return Router(len, forced=None, on_loop=False)


@pytest.fixture
def size_class(router: Router) -> SizeClass:
    return router.size_class(SIZE)


@pytest.mark.parametrize("before", range(3, 11))
def test_a_function_moves_when_its_calls_change_whatever_their_number(
    router: Router, size_class: SizeClass, before: int
) -> None:
    for _ in range(before):
        size_class.worked(1_500_000, 1_500_000)
        router._judge(size_class, SIZE, PORT, HOLDS)
    carry(router, size_class, 500, call_ns=1_500_000, carry_ns=100_000)
    assert router.choose(size_class) == "isolate"
    carry(router, size_class, 100, call_ns=300_000, carry_ns=450_000)
    assert router.choose(size_class) == "thread"


@pytest.mark.parametrize("busy", [0, 3000])
def test_a_function_whose_calls_find_no_isolate_any_more_goes_to_threads(
    router: Router, size_class: SizeClass, busy: int
) -> None:
    carry(router, size_class, busy, **BUSY)
    assert 0 < carry(router, size_class, AGAIN, **SPARSE) < 20
    assert router.choose(size_class) == "thread"


def test_a_function_that_went_to_threads_comes_back_once_its_calls_are_many_again(
    router: Router, size_class: SizeClass
) -> None:
    carry(router, size_class, 2 * AGAIN, **SPARSE)
    assert size_class.choice.where == "thread"
    assert any(carry(router, size_class, 1, **SPARSE) for _ in range(4 * AGAIN))
    assert carry(router, size_class, 100, **BUSY) > 80
    assert size_class.choice.where == "isolate"


def test_a_try_for_which_an_isolate_was_started_is_made_again(router: Router, size_class: SizeClass) -> None:
    carry(router, size_class, 40, call_ns=30 * MS, carry_ns=120 * MS)
    assert size_class.choice.where == "thread"
    carried = size_class.carried
    assert any(carry(router, size_class, 1, **SPARSE) for _ in range(4 * AGAIN))
    assert size_class.carried == carried
    assert carry(router, size_class, 1, **BUSY) == 1


def test_bursts_that_start_all_isolates_anew_stay_there(
    router: Router, size_class: SizeClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PORT.pool.budget, "cores", 8)
    carry(router, size_class, 100, **BUSY)
    for _ in range(20):
        carry(router, size_class, 8, **SPARSE)
        carry(router, size_class, 8, **BUSY)
    assert (size_class.choice.where, size_class.carried_cold) == ("isolate", 8 * 20)


def test_calls_that_could_not_be_carried_at_once_count_as_one(router: Router, size_class: SizeClass) -> None:
    carry(router, size_class, 100, **BUSY)
    for _ in range(8):
        router.stay(NotPortableError("it is a lambda"))
    assert 0 < carry(router, size_class, 300, **BUSY) < 50


def test_calls_that_seem_to_wait_in_isolates_show_it_in_threads(
    router: Router, size_class: SizeClass
) -> None:
    carry(router, size_class, 100, **BUSY)
    waits: Any = {**BUSY, "wait_ns": 200 * MS, "really_waits": True}
    assert carry(router, size_class, 30, **waits) < 30
    assert carry(router, size_class, 20, **waits, profile=WAITS) == 0
    assert (size_class.choice.where, size_class.choice.reason) == ("thread", PlacementReason.WAITS)


def test_calls_that_only_lack_a_core_in_isolates_stay_there(router: Router, size_class: SizeClass) -> None:
    carry(router, size_class, 100, **BUSY)
    assert carry(router, size_class, 20_000, **BUSY, wait_ns=90 * MS) > 19_500
    assert size_class.choice.where == "isolate"


def test_one_call_in_a_thread_shows_that_calls_only_lack_a_core_in_isolates(
    router: Router, size_class: SizeClass
) -> None:
    carry(router, size_class, 100, **BUSY)
    assert carry(router, size_class, 200, **BUSY, wait_ns=90 * MS) == 199


@pytest.mark.parametrize(("blocked_ns", "where"), [(0, "inline"), (12 * MS, "thread")])
def test_a_size_that_never_waits_runs_on_the_loop_beside_one_that_does(blocked_ns: int, where: str) -> None:
    router = Router(len, forced=None, on_loop=True)
    fast = router.size_class(SIZE)
    for number in range(32):
        fast.worked(10_000 + (blocked_ns if number % 4 else 0), 10_000)
    router._judge(fast, SIZE, PORT, WAITS)
    assert fast.choice.where == where
