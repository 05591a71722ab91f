"""The end of the interpreter, played by hand: who takes a call whose thread cannot be started any more.

What happens in a real interpreter is in `tests.stdlib.test_interpreter_exit`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest

from hybridrt.executor.exit import exit_error
from hybridrt.executor.thread_pool import ThreadPool
from hybridrt.pool.shutdown import close
from hybridrt.pool.state import QUEUED, InterpreterExit
from hybridrt.pool.worker import WorkerThread
from hybridrt.values import Kind

from .support import Stage, named


class AtExit:
    """Two pools, one with a thread and the permit, the other with calls; no thread starts any more."""

    def __init__(self, calls: int = 1) -> None:
        self.stage = Stage()
        self.other: Any = self.stage.add_pool()
        self.first = self.stage.push(self.stage.learn(Kind.SHORT, "first"))
        self.waiting = self.stage.push_many(calls, named("waiting"), self.other)
        for pool in (self.stage.pool, self.other):
            close(pool, exit_error, cancel_queued=False)
            pool.refusals = 99

    def take_place(self, ending: InterpreterExit) -> WorkerThread | None:
        """Play the main thread: take the place of the worker it is brought."""
        worker = ending.wakeup.get_nowait()
        if worker is not None:
            self.other.started.add(worker)
        return worker


def test_the_main_thread_takes_the_place_of_a_worker_of_a_pool_that_has_none() -> None:
    at_exit = AtExit()
    ending = at_exit.stage.budget.exiting = InterpreterExit()
    at_exit.stage.end(at_exit.first)
    assert not ending.free
    assert at_exit.take_place(ending) is not None
    assert at_exit.stage.running() == at_exit.waiting


def test_calls_that_come_while_the_main_thread_is_in_a_workers_place_wait_for_it() -> None:
    at_exit = AtExit(2)
    ending = at_exit.stage.budget.exiting = InterpreterExit()
    ending.free = False
    at_exit.stage.end(at_exit.first)
    assert at_exit.take_place(ending) is not None
    assert at_exit.stage.running() == at_exit.waiting[:1]
    at_exit.stage.end(at_exit.waiting[0])
    assert at_exit.stage.running() == at_exit.waiting[1:]


def test_a_call_whose_thread_is_refused_before_anybody_waits_stays_queued_until_then() -> None:
    """See the race in `not_started`."""
    stage = Stage()
    first = stage.push(stage.learn(Kind.SHORT, "first"))
    other: Any = stage.add_pool()
    call = stage.push(named("waiting"), pool=other)

    def refuse() -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    spawn = other.spawn

    def spawn_in_vain(name: str) -> WorkerThread:
        worker: WorkerThread = spawn(name)
        worker.thread.start = refuse  # type: ignore[method-assign]
        return worker

    other.spawn, other.start = spawn_in_vain, partial(ThreadPool.start, other)
    stage.pool.start = other.start  # type: ignore[method-assign]
    stage.end(first)
    assert (call.state, other.queued, len(other.roster.workers)) == (QUEUED, 1, 0)


def test_a_call_that_nobody_can_run_is_refused_and_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    at_exit = AtExit()
    at_exit.stage.end(at_exit.first)
    (call,) = at_exit.waiting
    assert isinstance(call.exception(0), RuntimeError)
    (text,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert text.endswith("waiting was accepted and never ran: can't start new thread")


def test_a_pool_that_is_made_at_exit_takes_no_calls() -> None:
    stage = Stage()
    stage.budget.refusal = exit_error
    late = stage.add_pool()
    with pytest.raises(RuntimeError, match="after interpreter shutdown"):
        stage.push(named("late"), pool=late)
