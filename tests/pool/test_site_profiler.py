"""Known wait sites where there is no `sys.monitoring`: seen by a profile function, set as briefly as can be.

No governor looks here.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from hybridrt.executor.budget import GovernedBudget
from hybridrt.observe.functions import Profile
from hybridrt.observe.wait_sites import AGAIN, MISSES_MAX, WHOLE_EVERY, WHOLE_FIRST, WaitsPerCall
from hybridrt.pool.site_profiler import EVENTS_MAX, SiteProfiler
from hybridrt.pool.state import Pool
from hybridrt.values import Kind, PhaseReason

from .racing import end, submit
from .support import DEADLINE, make_pool, until

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring takes its place")


def wait_at(gate: Any) -> None:
    gate.acquire()


def sites_of(fn: Callable[..., Any]) -> list[int]:
    """Return the offsets of the calls in a function."""
    return [step.offset for step in dis.get_instructions(fn) if step.opname == "CALL"]


@pytest.fixture
def pool() -> Iterator[Pool]:
    """A pool that knows where `wait_at` waits."""
    budget = GovernedBudget()
    budget.governor.parked = False  # nobody rings
    assert isinstance(budget.phases, SiteProfiler)
    pool = make_pool(budget)
    assert budget.phases.add(wait_at.__code__, sites_of(wait_at)[0])
    yield pool
    end(pool)
    assert budget.permits.held == [0, 0, 0, 0]
    budget.phases.rest()


def comes_there(pool: Pool, fn: Callable[..., Any], kind: Kind = Kind.SHORT) -> WaitsPerCall:
    """Let the pool know that calls of a function wait in `wait_at`."""
    profile = pool.profiles.of(fn)
    profile.kind, profile.turn_at = kind, 1 << 60
    profile.calls, profile.cpu_mean_ns = 1, 1 << 60  # so long that nothing else ends it
    profile.sited = sited = WaitsPerCall()
    return sited


def test_a_call_at_a_known_site_gives_its_permit_back_and_asks_for_it_again(pool: Pool) -> None:
    permits, gate = pool.budget.permits, threading.Lock()
    gate.acquire()

    def waits_and_computes() -> int:
        wait_at(gate)
        return sum(permits.held)

    comes_there(pool, waits_and_computes)
    call = submit(pool, waits_and_computes)
    until(lambda: pool.busy and sum(permits.held) == 0, "it waits")
    gate.release()
    assert call.result(DEADLINE) == 1


def test_what_a_wait_raises_passes_and_the_permit_comes_back(pool: Pool) -> None:
    permits = pool.budget.permits

    def computes_on() -> int:
        with pytest.raises(ValueError, match="no number"):
            wait_at(SimpleNamespace(acquire=partial(int, "no number")))
        return sum(permits.held)

    comes_there(pool, computes_on)
    assert submit(pool, computes_on).result(DEADLINE) == 1


def test_the_profile_function_is_taken_off_at_the_end_of_the_call(pool: Pool) -> None:
    def looks() -> object:
        return sys.getprofile()

    comes_there(pool, looks)
    assert submit(pool, looks).result(DEADLINE) is not None
    pool.profiles.of(looks).sited = None
    assert submit(pool, looks).result(DEADLINE) is None


def test_one_that_the_user_has_set_for_all_threads_is_never_replaced() -> None:
    def users(*_: object) -> None:
        pass

    def looks() -> object:
        return sys.getprofile()

    budget = GovernedBudget()
    budget.governor.parked = False  # nobody rings
    assert budget.phases.add(wait_at.__code__, sites_of(wait_at)[0])
    threading.setprofile(users)
    try:
        pool = make_pool(budget)
        comes_there(pool, looks)
        assert submit(pool, looks).result(DEADLINE) is users
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]  # as the documentation has it
        end(pool)
    budget.phases.rest()


def test_one_that_the_call_sets_stays(pool: Pool) -> None:
    def users(*_: object) -> None:
        pass

    def sets() -> None:
        sys.setprofile(users)

    def takes_off() -> object:
        mine = sys.getprofile()
        sys.setprofile(None)
        return mine

    comes_there(pool, sets)
    submit(pool, sets).result(DEADLINE)
    assert submit(pool, takes_off).result(DEADLINE) in (users, None)  # of this worker or another one


def test_it_is_taken_off_after_many_calls_without_a_wait(pool: Pool) -> None:
    def calls_much() -> tuple[bool, bool]:
        before = sys.getprofile() is not None
        for _ in range(EVENTS_MAX):
            len(())
        return before, sys.getprofile() is not None

    comes_there(pool, calls_much)
    assert submit(pool, calls_much).result(DEADLINE) == (True, False)


def test_it_is_taken_off_after_the_last_usual_wait(pool: Pool) -> None:
    gate = threading.Lock()
    gate.acquire()

    def waits() -> bool:
        gate.release()
        wait_at(gate)
        return sys.getprofile() is not None

    comes_there(pool, waits)
    seen = [submit(pool, waits).result(DEADLINE) for _ in range(WHOLE_FIRST + 1)]
    assert seen == [True] * WHOLE_FIRST + [False]


def test_short_calls_get_none(pool: Pool) -> None:
    def looks() -> bool:
        return sys.getprofile() is not None

    comes_there(pool, looks)
    profile = pool.profiles.of(looks)
    profile.cpu_mean_ns = 1_000_000
    assert not submit(pool, looks).result(DEADLINE)
    profile.cpu_mean_ns = 10_000_000
    assert submit(pool, looks).result(DEADLINE)


def test_a_call_that_computes_first_is_left_to_the_sampler(pool: Pool) -> None:
    permits, gate = pool.budget.permits, threading.Lock()
    gate.acquire()

    def computes_first() -> int:
        for _ in range(200_000):  # some milliseconds, without a call
            pass
        gate.release()
        wait_at(gate)
        return sum(permits.held)

    sited = comes_there(pool, computes_first)
    profile = pool.profiles.of(computes_first)
    profile.cpu_mean_ns = 2_000_000  # of which 0.25 ms may be slowed down
    for _ in range(MISSES_MAX):
        assert submit(pool, computes_first).result(DEADLINE) == 1
    assert not sited.worth_it


def test_a_function_whose_calls_never_come_to_a_site_is_left_alone() -> None:
    sited = WaitsPerCall()
    for _ in range(MISSES_MAX):
        assert sited.worth_it
        sited.ended(0, sited.starts())
    assert not sited.worth_it


def test_a_function_that_was_left_alone_is_looked_at_again_for_a_new_site() -> None:
    def waits_elsewhere(gate: Any) -> None:
        gate.acquire()

    sites, profile = SiteProfiler(), Profile("key", "name")
    sites.add(wait_at.__code__, sites_of(wait_at)[0], profile=profile)
    sited = profile.sited
    assert sited is not None
    for _ in range(MISSES_MAX):
        sited.ended(0, sited.starts())
    sites.add(wait_at.__code__, sites_of(wait_at)[0], profile=profile)
    assert profile.sited is sited
    sites.add(waits_elsewhere.__code__, sites_of(waits_elsewhere)[0], profile=profile)
    assert profile.sited is not None
    assert profile.sited.worth_it


def test_a_function_that_was_left_alone_is_followed_again_once_a_call_comes_to_a_site(pool: Pool) -> None:
    """As one whose answers came from a cache for a while."""

    def waits_now_and_then(gate: threading.Lock | None) -> bool:
        followed = sys.getprofile() is not None
        if gate is not None:
            wait_at(gate)
        return followed

    sited = comes_there(pool, waits_now_and_then)
    for _ in range(MISSES_MAX):
        assert submit(pool, waits_now_and_then, None).result(DEADLINE)
    followed = [submit(pool, waits_now_and_then, threading.Lock()).result(DEADLINE) for _ in range(AGAIN + 1)]
    assert not any(followed[: AGAIN - 1])
    assert sited.worth_it
    assert followed[-1]


def test_the_usual_waits_are_those_of_calls_that_are_seen_whole() -> None:
    sited = WaitsPerCall()
    for _ in range(WHOLE_FIRST):
        assert sited.starts() == 0
        sited.ended(3, 0)
    lasts = []
    for _ in range(2 * WHOLE_EVERY):
        lasts.append(last := sited.starts())
        sited.ended(min(2, last or 2), last)
    assert lasts.count(0) == 2
    assert lasts[0] == 3
    assert sited.starts() == 2


def test_a_site_is_found_whichever_instruction_it_was_seen_at() -> None:
    sites = SiteProfiler()
    (offset,) = (step.offset for step in dis.get_instructions(wait_at) if step.opname == "PRECALL")
    assert sites.add(wait_at.__code__, offset)
    assert not sites.add(wait_at.__code__, sites_of(wait_at)[0])
    assert sites.reason is PhaseReason.ON
    sites.rest()
    assert sites.reason is PhaseReason.READY
    assert sites.statistics().sites == ()
