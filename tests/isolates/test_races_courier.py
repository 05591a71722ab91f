"""Races of the loop and of threads for the calls that the loop carries."""

from __future__ import annotations

import asyncio
import select
import threading
from functools import partial
from typing import Any

import pytest

from hybridrt.values import Isolation
from tests.loop.support import eventually

from . import far
from .support import lighten, push

pytestmark = [
    pytest.mark.race,
    pytest.mark.usefixtures("runtime", "steady"),
    pytest.mark.skipif(not hasattr(select, "epoll"), reason="loops carry calls on Linux only"),
]


def _is_at_rest(call: Any) -> bool:
    """Tell whether a call has given back all it had; not under the lock, so it may be read half done."""
    return not call.pool.is_active() and call.line.crew.gate.active == 0


async def test_the_loop_and_a_thread_that_takes_over_deliver_a_call_once(isolation: Isolation) -> None:
    await lighten(far.add, isolation)
    for number in range(4):
        call = push(far.add, number, isolation=isolation)
        errand = next(iter(call.pool.crew.errands), None)
        thread = threading.Thread(target=errand.hand_over if errand is not None else int)
        thread.start()
        assert await call == number + 1
        thread.join()
        await eventually(partial(_is_at_rest, call))


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
