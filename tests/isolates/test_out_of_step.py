"""Isolates that send what answers no call: that isolate ends, its call fails, and nothing else does."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hybridrt import NotPortableError, WorkerLostError
from hybridrt.isolates import isolate_pool
from hybridrt.isolates.packing import SMALL, pack
from hybridrt.isolates.wire import OutOfStepError, Wire
from hybridrt.values import Isolation

from . import far
from .support import run_isolated

pytestmark = [
    pytest.mark.slow,  # each test starts isolates, and those that end are not to outlive it
    pytest.mark.usefixtures("one_at_a_time", "runtime"),
]

STRAYS = {
    "an empty message": bytes(64),
    "a few bytes": b"oops\n",
    "much": bytes(range(256)) * 512,
}
strays = pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)


async def results_are_right(isolation: Isolation, fn: Callable[..., Any] = far.echo) -> None:
    """See calls get their own results."""
    for number in range(5):
        assert await run_isolated(fn, number, isolation=isolation) == number


# ---------------------------------------------------------------------- through a thread


@strays
async def test_a_stray_message_fails_its_call_alone(isolation: Isolation, stray: bytes) -> None:
    with pytest.raises(WorkerLostError, match=r"no answer to its call, .*far:disturb") as caught:
        await run_isolated(far.disturb, stray, isolation=isolation)
    assert caught.value.started
    await results_are_right(isolation)


async def test_a_second_answer_is_nobody_elses_result(isolation: Isolation) -> None:
    before = await run_isolated(far.count_calls, isolation=isolation)
    assert await run_isolated(far.answer_twice, "mine", isolation=isolation) == "mine"
    with pytest.raises(WorkerLostError, match=r"no answer to its call, .*far:echo"):
        await run_isolated(far.echo, "not mine", isolation=isolation)
    await results_are_right(isolation)
    assert await run_isolated(far.count_calls, isolation=isolation) <= before  # in another isolate


async def test_an_answer_that_does_not_unpickle_ends_the_isolate(isolation: Isolation) -> None:
    before = isolate_pool.processes.isolates() if isolation == "process" else ()
    with pytest.raises(NotPortableError, match=r"far:answer_garbage .*cannot be rebuilt here"):
        await run_isolated(far.answer_garbage, isolation=isolation)
    await results_are_right(isolation)
    assert not set(before) & set(isolate_pool.processes.isolates())


async def test_a_panic_while_an_answer_is_rebuilt_here_is_told_as_any_error(isolation: Isolation) -> None:
    with pytest.raises(NotPortableError, match=r"far:PanickyError .*cannot be rebuilt here: Panic"):
        await run_isolated(far.PanickyError, isolation=isolation)
    await results_are_right(isolation)


# ---------------------------------------------------------------------- the wire itself


@pytest.mark.parametrize("size", [1, 2 * SMALL])
def test_a_wire_that_asks_takes_the_answer_to_its_last_message_alone(size: int) -> None:
    here, there = socket.socketpair()
    asks, answers = Wire(here, asks=True), Wire(there)
    with ThreadPoolExecutor(1) as far_end:
        asks.send(pack("call"))
        assert answers.receive().value == "call"
        answer = far_end.submit(answers.send, pack(bytes(size)))
        assert asks.receive().value == bytes(size)
        answer.result()
        answer = far_end.submit(answers.send, pack(bytes(size)))
        asks.send(pack("next call"))
        with pytest.raises(OutOfStepError):
            asks.receive()
        asks.cut()
        answer.exception()
    asks.close()
    answers.close()
