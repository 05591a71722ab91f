"""Races at the seams of the engine: cancel, claim, wake-up, retire, shutdown."""

from __future__ import annotations

import threading

import pytest

from hybridrt.executor.budget import GovernedBudget
from hybridrt.executor.future import ThreadCall
from hybridrt.governor.governor import IDLE_STEPS, Governor
from hybridrt.pool.shutdown import close, closed_error
from hybridrt.pool.withdraw import abandon
from hybridrt.values import Kind

from .racing import Beside, check, end, known, open_pool, submit
from .support import DEADLINE, make_pool, named

pytestmark = pytest.mark.race


# ---------------------------------------------------------------------- cancel


def test_a_cancel_and_a_claim_never_both_get_the_call() -> None:
    ran: list[int] = []
    with open_pool(lanes=False, max_workers=2) as pool:
        calls = [submit(pool, ran.append, number) for number in range(6)]
        with Beside(lambda: [call.cancel() for call in calls]):
            for call in reversed(calls):
                call.cancel()
        check(calls, ran)


def test_a_cancel_and_the_claim_of_a_parked_worker_never_both_get_the_call() -> None:
    ran: list[int] = []
    with open_pool(lanes=False, max_workers=1) as pool:
        submit(pool, named("warm")).result(DEADLINE)
        calls = []
        for number in range(8):
            calls.append(submit(pool, ran.append, number))
            calls[-1].cancel()
        check(calls, ran)


def test_a_cancel_and_a_batch_never_both_get_the_call() -> None:
    ran: list[int] = []
    go = threading.Event()
    with open_pool() as pool:
        known(pool, ran.append, Kind.SHORT, batch=4)
        known(pool, go.wait, Kind.SHORT)
        blocker = submit(pool, go.wait, DEADLINE)
        calls = [submit(pool, ran.append, number) for number in range(12)]
        with Beside(go.set):
            for call in calls[::3] + calls[1::3]:
                call.cancel()
        blocker.result(DEADLINE)
        check(calls, ran)


def test_a_call_cancelled_twice_at_once_is_counted_once() -> None:
    with open_pool(lanes=False, max_workers=1) as pool:
        go = threading.Event()
        submit(pool, go.wait, DEADLINE)
        call = submit(pool, named("queued"))
        with Beside(call.cancel):
            call.cancel()
        assert call.cancelled()
        assert pool.tally.cancelled == 1
        go.set()


def test_a_call_abandoned_while_it_ends_gives_its_place_back_once() -> None:
    with open_pool(lanes=False, max_workers=2) as pool:
        for _ in range(3):
            call = submit(pool, named("short"))
            with Beside(lambda call=call: abandon(call)):  # type: ignore[misc]
                call.result(DEADLINE)
        assert submit(pool, named("next")).result(DEADLINE) == ()
    assert pool.abandoned == 0


# ---------------------------------------------------------------------- wake-ups


def test_a_worker_that_goes_to_sleep_while_it_is_given_a_call_gets_it() -> None:
    with open_pool(lanes=False, max_workers=1) as pool:
        for number in range(20):
            assert submit(pool, named("one"), number).result(DEADLINE) == (number,)


def test_workers_that_go_to_sleep_while_others_give_them_calls_get_all() -> None:
    """Several submitters, parked and waking workers, lanes and batches: no call may be left in a batch."""
    ran: list[int] = []
    with open_pool() as pool:
        known(pool, ran.append, Kind.SHORT, batch=3)

        def submit_some(first: int) -> None:
            for number in range(first, first + 12):
                call = submit(pool, ran.append, number)
                if number % 3 == 0:
                    call.result(DEADLINE)

        with Beside(lambda: submit_some(100)):
            submit_some(0)
    assert sorted(ran) == [*range(12), *range(100, 112)]


def test_an_idle_timeout_and_a_dispatch_never_lose_a_call() -> None:
    with open_pool(lanes=False, idle_timeout=1e-6, min_workers=0, max_workers=2) as pool:
        for number in range(8):
            assert submit(pool, named("one"), number).result(DEADLINE) == (number,)


def test_a_governor_that_parks_while_a_call_is_pushed_is_rung() -> None:
    rings = []

    class Rung(Governor):
        def wake(self) -> None:
            rings.append(self.parked)
            self.parked = False

    budget = GovernedBudget()
    governor = budget.governor = Rung(budget, budget.shield)
    governor._idle_steps = IDLE_STEPS + 1
    pool = make_pool(budget, lanes=False)
    release = threading.Event()
    with Beside(lambda: governor.turn()):
        call = submit(pool, release.wait, DEADLINE)
    # Either its turn saw the call and it sleeps on, or it was rung after it had parked.
    assert not governor.parked or rings
    release.set()
    call.result(DEADLINE)
    end(pool)


# ---------------------------------------------------------------------- shutdown


@pytest.mark.parametrize("cancel_queued", [False, True])
def test_a_submit_and_a_shutdown_lose_no_accepted_call(cancel_queued: bool) -> None:
    ran: list[int] = []
    accepted: list[ThreadCall] = []
    with open_pool(lanes=False, max_workers=2) as pool:

        def submit_until_refused() -> None:
            for number in range(1000):
                try:
                    accepted.append(submit(pool, ran.append, number))
                except RuntimeError:
                    return

        with Beside(submit_until_refused):
            close(pool, closed_error, cancel_queued=cancel_queued)
        pool.join()
        check(accepted, ran)


def test_a_shutdown_and_calls_that_submit_calls_lose_none() -> None:
    done: list[ThreadCall] = []
    with open_pool(lanes=False, max_workers=3) as pool:

        def spread(depth: int) -> None:
            for _ in range(2 if depth else 0):
                try:
                    done.append(submit(pool, spread, depth - 1))
                except RuntimeError:
                    return

        done.append(submit(pool, spread, 3))
        close(pool, closed_error, cancel_queued=False)
        pool.join()
        assert all(call.done() for call in done)
