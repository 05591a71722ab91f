"""Whatever happens in whatever order, every future is done exactly once and everything is given back.

A state machine plays submitters, workers, cancellers and the governor over two pools under one
budget: calls of every kind, batches, gates, full queues, dying workers, threads that cannot start,
and a close at any moment.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from hybridrt import QueueFullError
from hybridrt.errors import RuntimeClosedError
from hybridrt.executor.future import ThreadCall
from hybridrt.pool.limiters import Limiter
from hybridrt.pool.permits import LONG, NONE, SHORT
from hybridrt.pool.rebalance import exchange_permit
from hybridrt.pool.roster import may_leave
from hybridrt.pool.scheduler import dispatch_locked
from hybridrt.pool.shutdown import close, closed_error
from hybridrt.pool.state import ASSIGNED, CANCELLED, DONE, QUEUED, Pool
from hybridrt.pool.withdraw import abandon
from hybridrt.values import Kind

from .support import MS, Stage, named

KINDS = [*Kind, "batch"]
NUMBERS = st.integers(0, 1000)
"""Which call something happens to, counted from the last one round and round."""


class Machine(RuleBasedStateMachine):
    """Two pools played by hand."""

    @initialize(
        gil=st.booleans(),
        lanes=st.booleans(),
        queue_max=st.sampled_from([None, 1, 3]),
        max_workers=st.sampled_from([1, 2, 40]),
        learns=st.booleans(),
    )
    def begin(self, gil: bool, lanes: bool, queue_max: int | None, max_workers: int, learns: bool) -> None:
        options = {"queue_max": queue_max, "max_workers": max_workers}
        self.stage = Stage(gil=gil, lanes=lanes, options=options)
        self.pools = [self.stage.pool, self.stage.add_pool(max_workers=3)]
        self.limiters = [Limiter(1, "one"), Limiter(2, "two")]
        self.accepted: list[ThreadCall] = []
        self.done: dict[ThreadCall, int] = {}
        self.rejected = 0
        self.functions = {
            (kind, pool): self.stage.learn(Kind.SHORT if kind == "batch" else Kind(kind), kind, pool)
            for kind in KINDS
            for pool in self.pools
            if kind != Kind.UNKNOWN
        }
        for (kind, pool), fn in self.functions.items():
            profile = pool.profiles.of(fn)
            profile.batch = 3 if kind == "batch" else 1
            profile.turn_at = 1 if learns else profile.turn_at

    # ------------------------------------------------------------------ what may happen

    @rule(
        kind=st.sampled_from(KINDS),
        place=st.integers(0, 1),
        limiters=st.sampled_from([(), (), (0,), (1,), (1, 0)]),
        patient=st.booleans(),
        resolves=st.sampled_from([False, False, False, True]),
        late=st.booleans(),
        watched=st.booleans(),
        count=st.integers(1, 6),
    )
    def submit(
        self, kind: str, place: int, limiters: tuple[int, ...], count: int, watched: bool, **fields: bool
    ) -> None:
        pool = self.pools[place]
        fn = self.functions.get((kind, pool)) or named(f"unknown_{len(self.accepted) % 3}")
        chosen = tuple(self.limiters[number] for number in limiters)
        for _ in range(count):
            try:
                call = self.stage.push(fn, pool=pool, limiters=chosen, **fields)
            except QueueFullError:
                self.rejected += 1
                continue
            except RuntimeClosedError:
                assert pool.refusal is not None
                continue
            self.accepted.append(call)
            if watched and not call.done():
                call.add_done_callback(self._count)  # makes its end take the longer way

    @rule(kind=st.sampled_from(KINDS), place=st.integers(0, 1), limiters=st.sampled_from([(), (0,), (1, 0)]))
    def submit_and_take_back(self, kind: str, place: int, limiters: tuple[int, ...]) -> None:
        """Cancel a call that a worker was given and has not claimed yet."""
        before = len(self.accepted)
        self.submit(kind, place, limiters, 1, False, patient=False, resolves=False, late=True)
        for call in self.accepted[before:]:
            assert call.cancel()
        self.stage.work()

    def _count(self, call: ThreadCall) -> None:  # type: ignore[override]
        self.done[call] = self.done.get(call, 0) + 1

    @rule(place=st.integers(0, 1))
    def submit_while_no_thread_can_start(self, place: int) -> None:
        pool = self.pools[place]
        pool.refusals = 1  # type: ignore[attr-defined]
        try:
            self.accepted.append(self.stage.push(self.functions[Kind.WAITING, pool], pool=pool))
        except (QueueFullError, RuntimeClosedError) as error:
            self.rejected += isinstance(error, QueueFullError)
        except RuntimeError as error:
            if "can't start" not in str(error):
                raise
        pool.refusals = 0  # type: ignore[attr-defined]
        self.stage.step()  # the governor looks again for a thread

    def _accepted(self, number: int) -> ThreadCall | None:
        return self.accepted[-1 - number % len(self.accepted)] if self.accepted else None

    def _running(self, number: int) -> ThreadCall | None:
        running = self.stage.running()
        return running[-1 - number % len(running)] if running else None

    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        call = self._accepted(number)
        if call is not None:
            unclaimed = call.state in (QUEUED, ASSIGNED)
            assert call.cancel() == (unclaimed or call.cancelled())

    @rule(number=NUMBERS, fails=st.booleans(), quick=st.booleans())
    def end(self, number: int, fails: bool, quick: bool) -> None:
        call = self._running(number)
        if call is not None:
            call.error = ValueError("failed") if fails else None
            self.stage.end(call, quick=quick)

    @rule(helper=NUMBERS, number=NUMBERS)
    def help(self, helper: int, number: int) -> None:
        running, call = self._running(helper), self._accepted(number)
        if running is not None and call is not None and call.pool is running.pool and call is not running:
            claimed = call.state not in (QUEUED, ASSIGNED)
            assert not (self.stage.help(running, call) and claimed)

    @rule(number=NUMBERS)
    def die(self, number: int) -> None:
        call = self._running(number)
        if call is not None and self.stage.worker_of(call) not in self.stage._batches:
            self.stage.kill(call)

    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        call = self._accepted(number)
        if call is not None and abandon(call):
            assert call.abandoned

    @rule(number=NUMBERS, computes=st.booleans())
    def change(self, number: int, computes: bool) -> None:
        call = self._running(number)
        if call is not None:
            (self.stage.compute if computes else self.stage.wait)(call)

    @rule(number=NUMBERS, permit=st.sampled_from([NONE, SHORT, LONG]))
    def say_that_it_waits(self, number: int, permit: int) -> None:
        call = self._running(number)
        if call is not None:
            exchange_permit(self.stage.worker_of(call), permit)

    @rule(milliseconds=st.sampled_from([1, 4, 30, 600]), times=st.integers(1, 4))
    def look(self, milliseconds: int, times: int) -> None:
        self.stage.step(milliseconds * MS, times=times)

    @rule()
    def threads_ask_whether_to_leave(self) -> None:
        for pool in self.pools:
            for worker in tuple(pool.roster.idle):
                may_leave(pool, worker, timed_out=True)

    @precondition(lambda self: len(self.accepted) > 20)
    @rule(place=st.integers(0, 1), cancel=st.booleans())
    def close(self, place: int, cancel: bool) -> None:
        close(self.pools[place], closed_error, cancel_queued=cancel)

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def what_is_held_is_what_workers_hold(self) -> None:
        permits = self.stage.permits
        workers = [worker for pool in self.pools for worker in pool.roster.workers]
        for permit in (SHORT, LONG, 3):
            assert permits.held[permit] == sum(worker.permit == permit for worker in workers)
        for pool in self.pools:
            own = pool.roster.workers
            assert pool.busy == sum(worker.serving and not worker.resolves for worker in own)
            assert pool.resolving == sum(worker.resolves for worker in own)
            assert pool.waiting == sum(worker.waits for worker in own)
            assert pool.abandoned == sum(worker.abandoned for worker in own)
            assert pool.busy <= pool.limits.highest

    @invariant()
    def a_queued_call_stands_in_one_place(self) -> None:
        for pool in self.pools:
            queued = [call for call in self.accepted if call.pool is pool and call.state == QUEUED]
            assert len(queued) == pool.queued + len(pool.backlog)
            assert all(call.place is not None and call in call.place for call in queued)

    @invariant()
    def no_call_waits_that_could_start(self) -> None:
        for pool in self.pools:
            queued = pool.queued
            with pool.lock:
                to_start = dispatch_locked(pool)
            assert (pool.queued, to_start) == (queued, []), "a call was queued that could have started"

    @invariant()
    def the_counts_add_up(self) -> None:
        for pool in self.pools:
            tally = pool.tally
            ended = tally.completed + tally.failed + tally.cancelled
            open_calls = [call for call in self.accepted if call.pool is pool and not call.done()]
            in_batches = [call for ran in self.stage._batches.values() for call in ran if call.pool is pool]
            assert tally.submitted == ended + len(open_calls) + len(in_batches)

    @invariant()
    def no_future_is_done_twice(self) -> None:
        assert set(self.done.values()) <= {1}

    @invariant()
    def a_call_that_ended_keeps_nothing(self) -> None:
        ended = [call for call in self.accepted if call.state in (DONE, CANCELLED)]
        assert all(call.fn is None and call.args == () for call in ended if call.done())

    # ------------------------------------------------------------------ the end

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        for pool in self.pools:
            close(pool, closed_error, cancel_queued=False)
        self._end_everything()
        assert all(call.done() for call in self.accepted)
        assert self.stage.permits.held == [0, 0, 0, 0]
        assert not self.stage.budget.waiting_for_permit
        assert all(limiter.active == 0 and not limiter.waiting for limiter in self.limiters)
        assert sum(pool.tally.rejected for pool in self.pools) == self.rejected
        for pool in self.pools:
            self._check_empty(pool)

    def _end_everything(self) -> None:
        for _ in range(2000):
            running = self.stage.running()
            if running:
                self.stage.end(running[0])
            elif any(pool.is_active() for pool in self.pools):
                self.stage.step(600 * MS)
            else:
                return

    def _check_empty(self, pool: Pool) -> None:
        tally = pool.tally
        assert not pool.is_active()
        assert tally.submitted == tally.completed + tally.failed + tally.cancelled
        assert (pool.busy, pool.waiting, pool.resolving, pool.abandoned, pool.queued) == (0, 0, 0, 0, 0)
        assert all(profile.unclassified == 0 for profile in pool.profiles._by_key.values())


TestMachine = pytest.mark.timeout(300)(pytest.mark.slow(Machine.TestCase))
TestMachine.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
