"""What a debugger shows of calls, workers and pools."""

from __future__ import annotations

from hybridrt.pool.call_state import CANCELLED, QUEUED, RUNNING, CallState
from hybridrt.pool.permit import Permit
from hybridrt.pool.permits import FREE, LONG, NONE, SHORT
from hybridrt.pool.state import Call, Worker
from hybridrt.values import Kind

from .support import Stage


def test_states_and_permits_are_numbers_that_say_their_names() -> None:
    assert [QUEUED, RUNNING, CANCELLED] == [0, 2, 4]
    assert list(Permit) == [NONE, SHORT, LONG, FREE]
    assert repr(CallState(1)) == "<CallState.ASSIGNED: 1>"
    assert repr(Permit(3)) == "<Permit.FREE: 3>"


def test_a_call_shows_its_function_its_state_and_its_permit() -> None:
    stage = Stage()
    running, queued = (stage.push(stage.learn(Kind.SHORT, "parse")) for _ in range(2))
    assert "parse, RUNNING, permit SHORT>" in repr(running)
    assert "parse, QUEUED, permit NONE>" in repr(queued)


def test_a_call_without_a_function_can_be_shown() -> None:
    assert repr(Call()) == "<Call without a function, QUEUED, permit NONE>"


def test_a_pool_and_its_workers_show_what_they_do() -> None:
    stage = Stage()
    fn = stage.learn(Kind.SHORT, "parse")
    assert "0 queued, 0 busy" in repr(stage.pool)
    first, second = stage.push(fn), stage.push(fn)
    assert "1 queued, 1 busy" in repr(stage.pool)
    (worker,) = stage.pool.roster.workers
    assert repr(first) in repr(worker)
    stage.pool.draining = True
    assert repr(stage.pool).endswith("draining>")
    assert {first.state, second.state} == {CallState.RUNNING, CallState.QUEUED}


def test_a_parked_worker_and_one_that_has_not_begun_show_it() -> None:
    worker = Worker(Stage().pool)
    assert repr(worker) == "<Worker without a thread, parked>"
    worker.serving = True
    worker.batch.append(Call())
    assert repr(worker) == "<Worker without a thread, calls to begin: 1>"
