"""What the race tests share: pools that end in their test, and a thread that acts beside it.

Every race test makes what it races with in its own body and ends it there, so that `--race-repeats`
can run it again and again. Without that option a body runs a few times in peace.
"""

from __future__ import annotations

import dis
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hybridrt.executor.budget import GovernedBudget
from hybridrt.executor.future import ThreadCall
from hybridrt.pool.shutdown import close, closed_error
from hybridrt.pool.state import Pool
from hybridrt.values import Kind

from .support import DEADLINE, make_call, make_pool

__all__ = ["Beside", "check", "end", "known", "open_pool", "pool_with_site", "site_of", "submit"]


@contextmanager
def open_pool(**options: Any) -> Iterator[Pool]:
    """Make a pool with real threads and no governor, and end it; everything must have been given back."""
    budget = GovernedBudget()
    budget.governor.parked = False  # nobody rings
    pool = make_pool(budget, **options)
    try:
        yield pool
    finally:
        end(pool)
    assert budget.permits.held == [0, 0, 0, 0]


@contextmanager
def pool_with_site(fn: Callable[..., Any]) -> Iterator[Pool]:
    """The same, with a pool that knows where a function waits: at the only call in it."""
    with open_pool() as pool:
        sites = pool.budget.phases
        assert sites.add(fn.__code__, site_of(fn))
        yield pool
    sites.rest()


def site_of(fn: Callable[..., Any]) -> int:
    """Return the offset of the only call in a function."""
    (offset,) = (step.offset for step in dis.get_instructions(fn) if step.opname.startswith("CALL"))
    return offset


def end(pool: Pool) -> None:
    """Let what is queued run, wait for the threads, and see that the books are right."""
    close(pool, closed_error, cancel_queued=False)
    pool.join()
    tally = pool.tally
    assert tally.submitted == tally.completed + tally.failed + tally.cancelled
    assert (pool.busy, pool.waiting, pool.in_line, pool.resolving, pool.queued) == (0, 0, 0, 0, 0)


def submit(pool: Pool, fn: Callable[..., Any], *args: Any, **fields: Any) -> ThreadCall:
    call = make_call(pool, fn, *args)
    for name, value in fields.items():
        setattr(call, name, value)
    pool.push(call)
    return call


def known(pool: Pool, fn: Callable[..., Any], kind: Kind, batch: int = 1) -> None:
    """Let a function be of a kind for ever."""
    profile = pool.profiles.of(fn)
    profile.kind, profile.batch, profile.turn_at = kind, batch, 1 << 60


class Beside:
    """A thread that does something beside the test, beginning together with it."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self._action = action
        self._go = threading.Barrier(2)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._go.wait(DEADLINE)
        try:
            self._action()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> None:
        self._go.wait(DEADLINE)

    def __exit__(self, *_: object) -> None:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


def check(calls: list[ThreadCall], ran: list[int]) -> None:
    """Every call either ran once or was cancelled and never ran."""
    for number, call in enumerate(calls):
        if call.cancelled():
            assert number not in ran
        else:
            call.result(DEADLINE)
    assert sorted(ran) == sorted(set(ran))
    assert len(ran) + sum(call.cancelled() for call in calls) == len(calls)
