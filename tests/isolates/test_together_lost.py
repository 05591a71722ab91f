"""Several light calls in one message: what becomes of those that do not come back, or are not waited for."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import weakref
from typing import Any

import psutil
import pytest

from hybridrt import Runtime, RuntimeClosedError, WorkerLostError
from hybridrt.loop import isolated
from hybridrt.loop.replies import replies_of
from hybridrt.pool import sampler
from hybridrt.pool.cancelling import abandon
from hybridrt.pool.errand import LATE_NS, send_back
from hybridrt.pool.isolates import crew
from hybridrt.pool.isolates.crossing import Crossing
from hybridrt.pool.isolates.packing import LIGHT
from hybridrt.values import Isolation
from tests.loop.support import DEADLINE, eventually
from tests.pool.support import until

from . import far
from .support import FarGate, carried_by_loop, closes_after, crowd, push

pytestmark = [
    pytest.mark.usefixtures("kept", "one_at_a_time", "runtime", "steady", "unhurried"),
    pytest.mark.skipif(not hasattr(select, "epoll"), reason="loops carry calls on Linux only"),
]


# ---------------------------------------------------------------------- not all come back


async def test_one_that_raises_fails_alone(isolation: Isolation) -> None:
    await crowd(far.divide, isolation)
    calls = [push(far.divide, value, isolation=isolation) for value in (1.0, 2.0, 0.0, 4.0)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [found[0], found[1], found[3]] == [1.0, 0.5, 0.25]
    assert isinstance(found[2], ZeroDivisionError)
    assert calls[0].pool.tally.failed == 1


async def test_the_first_that_raises_fails_alone() -> None:
    await crowd(far.divide)
    calls = [push(far.divide, value) for value in (0.0, 1.0, 2.0)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert found[1:] == [1.0, 0.5]
    assert isinstance(found[0], ZeroDivisionError)
    assert not crew.processes._lent


async def test_one_that_returns_much_comes_by_itself(isolation: Isolation) -> None:
    await crowd(far.make_bytes, isolation)
    sizes = (1, LIGHT + 1, 2)
    calls = [push(far.make_bytes, size, isolation=isolation) for size in sizes]
    assert [len(value) for value in await asyncio.gather(*calls)] == list(sizes)


async def test_callers_share_nothing(isolation: Isolation) -> None:
    await crowd(far.pop, isolation)
    values = [1, 2, 3]
    first, second = await asyncio.gather(*(push(far.pop, values, isolation=isolation) for _ in range(2)))
    assert (values, first, second) == ([1, 2, 3], [1, 2], [1, 2])
    assert first is not second


@pytest.mark.parametrize("count", [None, 2])
async def test_inputs_of_all_kinds_go_together(
    messages: list[int], isolation: Isolation, count: int | None
) -> None:
    await crowd(far.echo, isolation)
    inputs = [(), (1, "a", b"b", None, 1.5, True), ([1],), (bytearray(b"c"),), ([b"d"], (2,)), ({"e": 3},)]
    kwargs = {} if count is None else {"count": count}
    calls = [push(far.echo, *args, isolation=isolation, kwargs=kwargs) for args in inputs]
    values = await asyncio.gather(*calls)
    assert messages == [len(inputs)]
    assert values == [far.echo(*args, **kwargs) for args in inputs]
    assert type(values[3]) is type(far.echo(bytearray(b"c"), **kwargs))


async def test_after_one_that_took_long_the_rest_goes_elsewhere() -> None:
    line = await crowd(far.nap)
    calls = [push(far.nap, seconds) for seconds in (0.0, 0.02, 0.0)]
    assert await asyncio.gather(*calls) == [0.0, 0.02, 0.0]
    assert [call.alone for call in calls] == [False, False, True]
    assert line._most == isolated._TOGETHER


async def test_functions_whose_batches_fall_apart_go_less_together() -> None:
    line = await crowd(far.end_at_zero)
    for most in (8, 4, 2, 1):
        calls = [push(far.end_at_zero, value) for value in (0, 1)]
        await asyncio.gather(*calls, return_exceptions=True)
        line._usual_ns = 0
        line.came_again(0)
        assert line.together == line._most == most
        line.replies, line._crowd, line._brief = replies_of(asyncio.get_running_loop()), 1 << 60, 1 << 60


@pytest.mark.parametrize("stands_still", [False, True])
async def test_what_all_of_them_cost_is_told_if_a_thread_helps(stands_still: bool) -> None:
    await crowd(far.divide)
    told = list[Crossing | None]()
    values = (1.0, 2.0, 4.0, 5.0 if stands_still else 0.0)
    calls = [push(far.divide, value, on_crossing=told.append) for value in values]
    if stands_still:
        await asyncio.sleep(0)
        (errand,) = calls[0].pool.crew.errands
        until(errand._isolate.wire.has_news, "the reply is there")
        errand.hand_over()
    await asyncio.gather(*calls, return_exceptions=True)
    assert len(told) == 4


async def test_a_call_that_fails_is_freed_without_the_garbage_collector() -> None:
    await crowd(far.divide)
    call = push(far.divide, 0.0)
    assert carried_by_loop(call)
    await asyncio.wait({call})
    freed = weakref.ref(call)
    gc.disable()
    try:
        call.exception()
        del call
        await eventually(lambda: freed() is None)  # the thread that has brought it may still be at it
    finally:
        gc.enable()


async def test_texts_that_are_longer_packed_than_they_seem_come_through_a_thread() -> None:
    await crowd(far.echo)
    texts = ["\N{SNOWMAN}" * 700, "\N{SNOWMAN}" * 800]
    assert await asyncio.gather(*(push(far.echo, text) for text in texts)) == texts


async def test_one_that_ends_its_process_fails_alone() -> None:
    await crowd(far.end_at_zero)
    calls = [push(far.end_at_zero, value) for value in (1, 0, 2)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [found[0], found[2]] == [1, 2]
    assert isinstance(found[1], WorkerLostError)
    assert (found[1].started, found[1].exitcode) == (True, 3)


@pytest.mark.usefixtures("two_at_a_time")
async def test_a_process_that_is_killed_fails_none_of_them(far_gate: FarGate) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (1, 0, 2)]
    os.kill(await far_gate.entered(), signal.SIGKILL)
    await far_gate.entered()
    await far_gate.release()
    assert await asyncio.gather(*calls) == [1, 0, 2]


@pytest.mark.usefixtures("hurried", "two_at_a_time")
async def test_one_that_takes_long_keeps_nobody_waiting(far_gate: FarGate) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (1, 0, 2)]
    victim = psutil.Process(await far_gate.entered())
    assert [await calls[0], await calls[2]] == [1, 2]
    assert not calls[1].done()
    await asyncio.to_thread(victim.wait, DEADLINE)
    await far_gate.entered()
    await far_gate.release()
    assert await calls[1] == 0


# ---------------------------------------------------------------------- nobody waits any more


@pytest.mark.usefixtures("two_at_a_time")
async def test_abandoning_the_first_kills_the_process_and_the_others_run_again(far_gate: FarGate) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (0, 1, 2)]
    victim = psutil.Process(await far_gate.entered())
    calls[0].expire(0.5)
    assert await asyncio.gather(*calls[1:]) == [1, 2]
    assert isinstance(calls[0].exception(), TimeoutError)
    await asyncio.to_thread(victim.wait, DEADLINE)
    await eventually(lambda: not calls[0].pool.is_active())


async def test_abandoning_another_leaves_the_process_alone() -> None:
    await crowd(far.echo)
    pids = [isolate.pid for isolate in crew.processes.isolates()]  # type: ignore[attr-defined]
    calls = [push(far.echo, number) for number in range(3)]
    calls[1].abandon_on_cancel = True
    calls[1].cancel()
    assert calls[1].cancelled()
    assert [await calls[0], await calls[2]] == [0, 2]
    assert [isolate.pid for isolate in crew.processes.isolates()] == pids  # type: ignore[attr-defined]
    assert not calls[0].pool.is_active()


@pytest.mark.usefixtures("two_at_a_time")
async def test_one_that_was_cancelled_does_not_run_again(
    far_gate: FarGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (0, 1, 2)]
    await far_gate.entered()
    calls[1].cancel()
    assert not calls[1].done()
    monkeypatch.setattr(sampler, "LATE_NS", LATE_NS)  # not before
    assert await calls[2] == 2
    with pytest.raises(asyncio.CancelledError):
        await calls[1]
    await far_gate.entered()
    await far_gate.release()
    assert await calls[0] == 0
    assert calls[0].pool.tally.cancelled == 1


async def test_one_that_is_abandoned_before_it_sets_out_takes_nobody_with_it() -> None:
    await crowd(far.echo)
    calls = [push(far.echo, number) for number in range(3)]
    calls[0].expire(0.0)
    assert await asyncio.gather(*calls[1:]) == [1, 2]
    await eventually(lambda: not calls[0].pool.is_active() and not crew.processes._lent)


async def test_closing_at_the_deadline_gives_all_of_them_up(
    runtime: Runtime, far_gate: FarGate, caplog: pytest.LogCaptureFixture
) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (0, 1)]
    await far_gate.entered()
    runtime.shutdown_timeout = 0.0
    await runtime.aclose()
    for call in calls:
        with pytest.raises(RuntimeClosedError):
            await call
    assert caplog.text.count("in another interpreter; the runtime closes and leaves its isolate behind") == 2
    await eventually(lambda: not calls[0].pool.crew.errands)


async def test_closing_waits_for_all_of_them(runtime: Runtime, far_gate: FarGate) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (0, 1)]
    await far_gate.entered()
    assert await closes_after(runtime, calls[0], far_gate) == 0
    assert await calls[1] == 1


async def test_a_call_cancelled_before_it_sets_out_never_runs() -> None:
    await crowd(far.count_calls)
    before = await push(far.count_calls)
    call = push(far.count_calls)
    call.cancel()
    await asyncio.wait({call})
    assert call.cancelled()
    assert await push(far.count_calls) == before + 1


async def test_of_several_that_set_out_together_those_cancelled_before_never_run() -> None:
    await crowd(far.count_calls)
    before = await push(far.count_calls)
    calls = [push(far.count_calls) for _ in range(4)]
    for number in (0, 2, 3):
        calls[number].cancel()
    assert await calls[1] == before + 1
    await asyncio.wait(calls)
    assert [call.cancelled() for call in calls] == [True, False, True, True]
    assert await push(far.count_calls) == before + 2
    await eventually(lambda: not calls[0].pool.is_active())


@pytest.mark.usefixtures("two_at_a_time")
async def test_the_first_does_not_run_again_if_it_was_cancelled(
    far_gate: FarGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    await crowd(far.hold_zero)
    calls = [far_gate.push(value, far.hold_zero) for value in (0, 1)]
    await far_gate.entered()
    calls[0].cancel()
    monkeypatch.setattr(sampler, "LATE_NS", LATE_NS)  # not before
    assert await calls[1] == 1
    await asyncio.wait({calls[0]})
    assert calls[0].cancelled()
    await eventually(lambda: not calls[0].pool.is_active() and not crew.processes._lent)


async def test_a_timeout_that_strikes_while_calls_are_sent_back_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await crowd(far.add)
    calls = [push(far.add, number) for number in range(2)]
    errand = next(iter(calls[0].pool.crew.errands))

    def send_back_first(given: Any) -> bool:
        send_back(errand)
        return abandon(given)

    monkeypatch.setattr("hybridrt.loop.call.abandon", send_back_first)
    calls[1].expire(1.0)
    with pytest.raises(TimeoutError, match="did not start within its timeout"):
        await calls[1]
    assert await calls[0] == 1
