"""Races of the loop and of threads for the calls that the loop carries."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from hybridrt.pool.isolates.wire import Wire
from hybridrt.values import Isolation
from tests.loop.support import eventually

from . import far
from .support import crowd, lighten, push

pytestmark = [
    pytest.mark.race,
    pytest.mark.usefixtures("runtime", "steady"),
    pytest.mark.skipif(not hasattr(select, "epoll"), reason="loops carry calls on Linux only"),
]


def _is_at_rest(call: Any) -> bool:
    """Tell whether a call has given back all it had; not under the lock, so it may be read half done."""
    return not call.pool.is_active() and call.line.crew.gate.active == 0


@asynccontextmanager
async def taken_over(call: Any) -> AsyncIterator[None]:
    """Let a thread take over the errand that a call is on, whatever the loop does meanwhile."""
    errand = next((errand for errand in call.pool.crew.errands if call in errand.calls()), None)
    thread = threading.Thread(target=errand.hand_over if errand is not None else int)
    thread.start()
    yield
    thread.join()
    await eventually(partial(_is_at_rest, call))


async def test_the_loop_and_a_thread_that_takes_over_deliver_a_call_once(isolation: Isolation) -> None:
    await lighten(far.add, isolation)
    for number in range(4):
        call = push(far.add, number, isolation=isolation)
        async with taken_over(call):
            assert await call == number + 1


async def test_calls_of_two_loops_that_share_isolates_all_come_back(isolation: Isolation) -> None:
    async def some() -> Any:
        await lighten(far.echo, isolation)
        calls = [push(far.echo, number, isolation=isolation) for number in range(6)]
        assert [await call for call in calls] == [0, 1, 2, 3, 4, 5]
        return calls[0]

    other = threading.Thread(target=lambda: others.append(asyncio.run(some())))
    others = list[Any]()
    other.start()
    call = await some()
    await asyncio.to_thread(other.join)
    assert len(others) == 1
    await eventually(partial(_is_at_rest, call))


async def test_a_call_withdrawn_while_another_ends_never_runs_and_blocks_nobody() -> None:
    await lighten(far.echo)
    calls = [push(far.echo, number) for number in range(6)]
    calls[3].cancel()
    calls[5].cancel()
    assert [await calls[number] for number in (0, 1, 2, 4)] == [0, 1, 2, 4]
    assert calls[3].cancelled()
    assert calls[5].cancelled()
    await eventually(partial(_is_at_rest, calls[0]))


async def test_calls_that_linger_depart_once_or_are_handed_over_once(isolation: Isolation) -> None:
    await crowd(far.add, isolation)
    calls = [push(far.add, number, isolation=isolation) for number in range(4)]
    async with taken_over(calls[0]):
        assert await asyncio.gather(*calls) == [1, 2, 3, 4]


async def test_a_call_that_joins_while_a_thread_takes_over_is_not_lost(isolation: Isolation) -> None:
    await crowd(far.add, isolation)
    calls = [push(far.add, 0, isolation=isolation)]
    async with taken_over(calls[0]):
        calls += [push(far.add, number, isolation=isolation) for number in range(1, 5)]
        assert await asyncio.gather(*calls) == [1, 2, 3, 4, 5]


async def test_the_loop_and_a_thread_that_takes_over_deliver_a_batch_once(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits_for_news(wire: Wire) -> bool:
        return bool(select.select([wire.fileno()], [], [], None)[0])

    monkeypatch.setattr(Wire, "has_news", waits_for_news)  # else the isolate is ended, and another started
    await crowd(far.add, isolation)
    calls = [push(far.add, number, isolation=isolation) for number in range(4)]
    await asyncio.sleep(0)
    async with taken_over(calls[0]):
        assert await asyncio.gather(*calls) == [1, 2, 3, 4]


async def test_a_call_cancelled_while_its_batch_is_sent_back_ends_once(isolation: Isolation) -> None:
    await crowd(far.add, isolation)
    calls = [push(far.add, number, isolation=isolation) for number in range(4)]
    async with taken_over(calls[0]):
        calls[2].cancel()
        assert await asyncio.gather(*calls[:2], calls[3]) == [1, 2, 4]
        await asyncio.wait({calls[2]})
        assert calls[2].cancelled()


@pytest.mark.usefixtures("one_at_a_time")
async def test_calls_of_a_crowd_all_come_back_while_workers_and_loop_take_turns(isolation: Isolation) -> None:
    await crowd(far.echo, isolation)
    values = [bytes(5000) if number == 3 else number for number in range(8)]
    calls = [push(far.echo, value, isolation=isolation) for value in values]
    assert await asyncio.gather(*calls) == values
    await eventually(partial(_is_at_rest, calls[0]))
