"""Tools: called as before, and called as an agent does, with timeout, retries, limit and place."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import sys
import threading
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from hybridrt import OffloadTimeoutError, Runtime, offload, tool
from hybridrt.agents import Tool
from hybridrt.agents.measured import Measure, measure_offloaded
from hybridrt.agents.retrying import WAIT_MAX, Retries
from hybridrt.agents.tools import as_tool
from tests.agents.examples import count_letters, process_id
from tests.loop.support import Gate, eventually, turns


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool
async def triple(number: int) -> int:
    """Triple a number."""
    await asyncio.sleep(0)
    return 3 * number


def test_a_plain_function_stays_one() -> None:
    assert double(2) == 4
    assert not inspect.iscoroutinefunction(double)
    assert double.__doc__ == "Double a number."
    assert str(inspect.signature(double)) == "(number: 'int') -> 'int'"


async def test_a_coroutine_function_stays_one() -> None:
    assert inspect.iscoroutinefunction(triple)
    assert await triple(2) == 6


async def test_a_tool_may_be_offloaded() -> None:
    assert await offload(double)(2) == 4
    assert offload(double).sync(2) == 4


async def test_an_offloaded_function_may_be_a_tool() -> None:
    @tool
    @offload(lane="tests of tools")
    def half(number: int) -> int:
        return number // 2

    assert await half(4) == 2
    assert await half.invoke({"number": 4}) == 2


async def measured(called: Tool[..., Any], **arguments: Any) -> tuple[Any, Measure]:
    measure = Measure()
    return await called._invoke(arguments, measure), measure


async def test_a_plain_function_runs_in_a_thread_and_is_measured() -> None:
    @tool
    def where() -> int:
        sum(range(10_000))
        return threading.get_ident()

    thread, measure = await measured(where)
    assert thread != threading.get_ident()
    assert (measure.place, measure.attempts) == ("thread", 1)
    assert measure.queue_wait >= 0
    assert measure.cpu is not None
    assert measure.wall > 0
    assert measure.cpu > 0


async def test_a_coroutine_function_runs_on_the_loop_and_its_steps_are_measured() -> None:
    @tool
    async def where() -> int:
        sum(range(10_000))
        await asyncio.sleep(0)
        sum(range(10_000))
        return threading.get_ident()

    thread, measure = await measured(where)
    assert thread == threading.get_ident()
    assert measure.place == "loop"
    assert measure.cpu is not None
    assert measure.wall > 0
    assert measure.cpu > 0


async def test_a_function_for_the_loop_is_measured_there() -> None:
    def where() -> int:
        return threading.get_ident()

    thread, measure = await measured(tool(where, where="inline"))
    assert thread == threading.get_ident()
    assert (measure.place, measure.queue_wait) == ("inline", 0.0)


async def test_a_call_that_was_to_run_on_the_loop_and_never_began_has_no_place() -> None:
    measure = Measure()
    with pytest.raises(OffloadTimeoutError):
        await measure_offloaded(measure, never_begins, {})
    assert (measure.place, measure.wall, measure.cpu) == (None, 0.0, None)


async def never_begins() -> None:
    raise OffloadTimeoutError("its turn did not come", started=False)


def test_loops_that_are_closed_are_forgotten() -> None:
    @tool(limit=1)
    async def wait() -> None:
        await asyncio.sleep(0)

    async def contend() -> None:
        await asyncio.gather(wait.invoke(), wait.invoke())

    for _ in range(3):
        asyncio.run(contend())
    slots = inspect.getclosurevars(wait._call).nonlocals["slots"]
    assert len(slots._of) == 1


def test_few_loops_that_were_dropped_without_a_close_are_kept() -> None:
    @tool(limit=1)
    async def wait() -> None:
        await asyncio.sleep(0)

    loops = [asyncio.new_event_loop() for _ in range(40)]
    for loop in loops:
        loop.run_until_complete(wait.invoke())
    slots = inspect.getclosurevars(wait._call).nonlocals["slots"]
    assert len(slots._of) < len(loops)
    for loop in loops:
        loop.close()


@pytest.mark.slow
async def test_a_pure_function_runs_in_an_isolate_and_its_cpu_time_is_that_over_there() -> None:
    (process, computed), measure = await measured(process_id, text="x")
    assert measure.place == "isolate"
    assert process != os.getpid() or sys.version_info >= (3, 14)  # there it may be a sub-interpreter
    assert measure.cpu is not None
    assert measure.cpu >= computed


async def test_calls_are_booked_under_the_function_itself() -> None:
    async with Runtime() as runtime:
        assert await count_letters.invoke({"text": "abc"}) == 3
        names = [function.name for function in runtime.statistics().functions]
    assert names == ["tests.agents.examples:count_letters"]


class Flaky:
    """Fails so often, then succeeds."""

    def __init__(self, failures: int, error: type[Exception]) -> None:
        self.left, self.error, self.calls = failures, error, 0

    def fail_or_not(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error("not yet")
        return "at last"

    async def fail_or_not_on_the_loop(self) -> str:
        return self.fail_or_not()


@pytest.mark.parametrize("method", ["fail_or_not", "fail_or_not_on_the_loop"])
async def test_named_errors_are_tried_again(method: str) -> None:
    flaky = Flaky(2, ConnectionError)
    retried: Tool[..., Any] = tool(getattr(flaky, method), retries=2, retry_on=OSError, backoff=0.0)
    value, measure = await measured(retried)
    assert (value, flaky.calls, measure.attempts) == ("at last", 3, 3)


@pytest.mark.parametrize(("failures", "error", "calls"), [(3, OSError, 3), (1, KeyError, 1)])
async def test_the_last_error_is_raised_and_others_at_once(
    failures: int, error: type[Exception], calls: int
) -> None:
    flaky = Flaky(failures, error)
    with pytest.raises(error, match="not yet"):
        await tool(flaky.fail_or_not, retries=2, retry_on=(OSError,), backoff=0.0).invoke()
    assert flaky.calls == calls


def test_waits_double_up_to_a_bound_and_are_spread_over_all_of_it() -> None:
    retries = Retries(times=9, on=(OSError,), backoff=1.0)
    assert [retries.wait(failures, 0.5) for failures in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert retries.wait(1_000_000, 0.5) == WAIT_MAX / 2
    assert retries.wait(5, 0.0) == 0.0


async def test_between_two_attempts_passes_a_random_part_of_the_backoff() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def fail() -> None:
        raise OSError

    chances = iter([0.25, 0.75])
    with pytest.raises(OSError):  # noqa: PT011  # it has no text
        await Retries(times=2, on=(OSError,), backoff=4.0).run(
            fail, sleep=sleep, chance=lambda: next(chances)
        )
    assert waits == [1.0, 6.0]


async def test_a_function_that_misses_its_timeout_is_left_behind() -> None:
    async with Gate() as gate:
        measure = Measure()

        def wait() -> None:
            gate()

        late = tool(wait, timeout=0.01)
        with pytest.raises(OffloadTimeoutError, match=r"within its timeout|after its timeout"):
            await late._invoke({}, measure)
        assert measure.cpu is None


async def test_a_coroutine_that_misses_its_timeout_is_cancelled() -> None:
    ended: list[str] = []

    @tool(timeout=0.01)
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(OffloadTimeoutError, match=r"wait still ran after its timeout of 0.01 s") as caught:
        await wait.invoke()
    assert caught.value.started
    assert ended == ["cancelled"]


async def test_a_timeout_of_the_coroutines_own_is_its_own() -> None:
    @tool(timeout=60.0)
    async def fail() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await fail.invoke()


async def test_a_timeout_can_be_tried_again() -> None:
    begun: list[int] = []

    @tool(timeout=0.01, retries=1, retry_on=OffloadTimeoutError, backoff=0.0)
    async def second_time() -> str:
        begun.append(1)
        if len(begun) == 1:
            await asyncio.Event().wait()
        return "done"

    while True:  # on a busy machine the second attempt may miss it, too
        try:
            assert await second_time.invoke() == "done"
        except OffloadTimeoutError:
            continue
        break
    assert len(begun) >= 2


async def test_no_more_calls_of_a_coroutine_than_its_limit_run_at_once() -> None:
    opened, inside, most = asyncio.Event(), 0, 0

    @tool(limit=2)
    async def enter() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await opened.wait()
        inside -= 1

    calls = [asyncio.ensure_future(enter.invoke()) for _ in range(5)]
    await turns(20)
    assert inside == 2
    opened.set()
    await asyncio.gather(*calls)
    assert most == 2


async def test_no_more_calls_of_a_function_than_its_limit_run_at_once() -> None:
    async with Gate() as gate:

        def enter() -> None:
            gate()

        entered = tool(enter, limit=1)
        calls = [asyncio.ensure_future(entered.invoke()) for _ in range(3)]
        await gate.entered()
        await turns(20)
        assert gate.is_empty()
        gate.release()
        await asyncio.gather(*calls)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"timeout": 0}, ValueError, "timeout is in seconds and must be a number > 0 or None, got 0"),
        ({"timeout": "5"}, TypeError, "timeout is in seconds"),
        ({"retries": -1}, ValueError, "retries must be an int >= 0, got -1"),
        ({"retries": 1}, ValueError, "retries=1 needs retry_on"),
        ({"retry_on": OSError}, ValueError, "retry_on needs retries"),
        ({"retries": 1, "retry_on": "OSError"}, TypeError, "retry_on must be an exception class"),
        ({"retries": 1, "retry_on": BaseException}, TypeError, "retry_on must be an exception class"),
        ({"backoff": -1.0}, ValueError, "backoff is in seconds"),
        ({"limit": 0}, ValueError, "limit must be an int >= 1 or None, got 0"),
        ({"pure": 1}, TypeError, "pure must be True or False"),
        ({"where": "isolate"}, ValueError, "where='isolate' needs pure=True"),
        ({"where": "moon"}, ValueError, "where must be one of"),
        ({"name": 7}, TypeError, "name must be a str or None, got 7"),
        ({"name": "two words"}, TypeError, "got 'two words'"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_decoration(
    options: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):

        @tool(**options)
        def search(query: str) -> str:
            return query


def test_a_coroutine_function_is_not_pure() -> None:
    async def fetch(url: str) -> str:
        return url

    with pytest.raises(TypeError, match="got the coroutine function fetch, which runs on the loop"):
        tool(fetch, pure=True)
    with pytest.raises(TypeError, match="got the coroutine function fetch"):
        tool(fetch, where="thread")


def test_a_tool_is_made_once() -> None:
    with pytest.raises(TypeError, match="is a tool already"):
        tool(double)
    assert as_tool(double) is double


async def test_what_a_plain_function_gives_to_be_awaited_is_awaited() -> None:
    async def later(number: int) -> int:
        return 2 * number

    def made(number: int) -> Coroutine[Any, Any, int]:
        return later(number)

    assert await tool(made).invoke('{"number": 4}') == 8


async def test_a_partial_of_what_is_called_as_a_coroutine_function_runs_on_the_loop() -> None:
    class Times:
        async def __call__(self, number: int, factor: int) -> int:
            return factor * number

    assert await tool(partial(Times(), factor=3), name="times").invoke('{"number": 4}') == 12


def passing_on(fn: Any) -> Any:
    """Return a decorated function as most decorators make one: plain, whatever it wraps."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


async def test_a_coroutine_function_below_a_plain_decorator_is_awaited() -> None:
    async def later(number: int) -> int:
        return 2 * number

    assert await tool(passing_on(later)).invoke('{"number": 4}') == 8


async def test_what_is_awaited_for_a_plain_function_has_the_timeout_of_the_tool() -> None:
    cancelled = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(OffloadTimeoutError, match="wait still ran after its timeout"):
        await tool(passing_on(wait), timeout=0.05).invoke()
    assert cancelled.is_set()


async def test_no_more_of_what_plain_functions_give_is_awaited_at_once_than_the_limit() -> None:
    inside, most = 0, 0

    async def count() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await turns()
        inside -= 1

    counted = tool(passing_on(count), limit=1)
    await asyncio.gather(*(counted.invoke() for _ in range(4)))
    assert most == 1


async def test_what_was_to_be_awaited_and_never_began_is_closed() -> None:
    made: list[Coroutine[Any, Any, None]] = []

    async def wait() -> None:
        await asyncio.Event().wait()

    def make() -> Coroutine[Any, Any, None]:
        made.append(wait())
        return made[-1]

    awaited = tool(make, limit=1)
    calls = [asyncio.ensure_future(awaited.invoke()) for _ in range(2)]
    await eventually(lambda: len(made) == 2)
    await turns()
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert {inspect.getcoroutinestate(each) for each in made} == {inspect.CORO_CLOSED}


async def test_a_tool_below_offload_keeps_what_was_said_of_it() -> None:
    flaky = Flaky(1, OSError)
    inner: Tool[..., Any] = tool(flaky.fail_or_not, name="flaky", retries=1, retry_on=OSError, backoff=0.0)
    outer = as_tool(offload(inner))
    assert outer.name == "flaky"
    assert await outer.invoke() == "at last"


async def test_a_second_attempt_gets_the_arguments_that_the_model_gave() -> None:
    seen: list[list[str]] = []

    @tool(retries=1, retry_on=OSError, backoff=0.0)
    async def consume(names: list[str]) -> str:
        """Consume."""
        seen.append([*names])
        names.clear()
        if len(seen) == 1:
            raise OSError
        return "done"

    assert await consume.invoke('{"names": ["a", "b"]}') == "done"
    assert seen == [["a", "b"]] * 2
