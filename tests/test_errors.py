"""Each error says whether the call had started."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

import hybridrt
from hybridrt import (
    HybridrtError,
    LaneNestingError,
    NotPortableError,
    QueueFullError,
    Runtime,
    RuntimeClosedError,
    offload,
)
from hybridrt.errors import IsolateStartError
from tests.isolates import far
from tests.loop.support import Gate, hold, sole_worker, turns

PUBLIC = [
    error
    for error in vars(hybridrt).values()
    if isinstance(error, type) and issubclass(error, HybridrtError) and error is not HybridrtError
]


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("error", [*PUBLIC, IsolateStartError])
def test_an_error_keeps_what_it_says_when_it_is_pickled(error: type[HybridrtError], started: bool) -> None:
    again = pickle.loads(pickle.dumps(error("what happened", started=started)))
    assert (type(again), str(again), again.started) == (error, "what happened", started)


def test_there_are_seven_errors() -> None:
    assert len(PUBLIC) == 7


async def test_a_refused_call_has_not_started() -> None:
    runtime = sole_worker(queue_max=1)
    async with runtime, Gate() as gate:
        running = await hold(runtime, gate)
        runtime.executor.submit(len, "abc")
        with pytest.raises(QueueFullError) as caught:
            runtime.executor.submit(len, "abc")
        assert caught.value.started is False
        gate.release()
        await running


async def test_a_call_that_nests_in_its_lane_has_not_started() -> None:
    def outer() -> int:
        return asyncio.run(offload(len, lane="nested")("abc"))

    with pytest.raises(LaneNestingError) as caught:
        await offload(outer, lane="nested")()
    assert caught.value.started is False


async def test_a_call_whose_runtime_closes_says_whether_it_ran() -> None:
    runtime = sole_worker(shutdown_timeout=0)
    async with runtime, Gate() as gate:
        running = await hold(runtime, gate)
        queued = asyncio.ensure_future(runtime.offload(len, "abc"))
        await turns()
        await runtime.aclose()
        errors: list[Any] = await asyncio.gather(running, queued, return_exceptions=True)
        assert [(type(error), error.started) for error in errors] == [
            (RuntimeClosedError, True),
            (RuntimeClosedError, False),
        ]


@pytest.mark.slow
async def test_a_call_that_cannot_cross_says_on_which_way() -> None:
    async with Runtime():
        with pytest.raises(NotPortableError) as caught:
            await offload(far.echo, pure=True, where="isolate")(lambda: None)
        assert caught.value.started is False
        with pytest.raises(NotPortableError) as caught:
            await offload(far.make_lock, pure=True, where="isolate")()
        assert caught.value.started is True
