"""Completions reach the loop in batches, and none of them is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hybridrt import Runtime, offload
from hybridrt.loop.completions import CompletionQueue, completions_of
from hybridrt.pool.state import DONE, Call

from ..pool.support import until
from .support import DEADLINE, Gate, hold, sole_worker, turns
from .test_timeouts import wait_without_turning


@pytest.fixture
async def wakes(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., object]]:
    """Note every `call_soon_threadsafe` of the running loop by which completions arrive."""
    loop, wakes = asyncio.get_running_loop(), list[Callable[..., object]]()
    wake = loop.call_soon_threadsafe

    def note(callback: Callable[..., object], *args: Any, **kwargs: Any) -> asyncio.Handle:
        if isinstance(getattr(callback, "__self__", None), CompletionQueue):
            wakes.append(callback)
        return wake(callback, *args, **kwargs)

    monkeypatch.setattr(loop, "call_soon_threadsafe", note)
    return wakes


async def test_calls_that_end_in_one_turn_wake_the_loop_once(wakes: list[object]) -> None:
    async with sole_worker() as runtime, Gate() as gate:
        holding = await hold(runtime, gate)
        tasks = [asyncio.ensure_future(runtime.offload(abs, -n)) for n in range(100)]
        await turns()
        wakes.clear()
        gate.release()
        wait_without_turning(lambda: runtime.statistics().completed == 101)
        assert await asyncio.gather(*tasks) == list(range(100))
        await holding
        assert len(wakes) == 1


async def test_calls_of_the_default_executor_share_the_wake_up(wakes: list[object]) -> None:
    async with sole_worker() as runtime, Gate() as gate:
        holding = await hold(runtime, gate)
        tasks = [asyncio.ensure_future(asyncio.to_thread(abs, -n)) for n in range(50)]
        tasks += [asyncio.ensure_future(runtime.offload(abs, -n)) for n in range(50)]
        await turns()
        wakes.clear()
        gate.release()
        wait_without_turning(lambda: runtime.statistics().completed == 101)
        assert await asyncio.gather(*tasks) == [*range(50), *range(50)]
        await holding
        assert len(wakes) == 1


async def test_one_call_after_the_other_wakes_the_loop_each_time(wakes: list[object]) -> None:
    for n in range(10):
        assert await offload(abs)(-n) == n
    assert len(wakes) == 10


class Loop:
    """A loop that keeps its callbacks until the test runs them."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], object]] = []
        self.closed = False

    def time(self) -> float:
        return 0.0

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self.ready.append(callback)

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


class Ended(Call):
    """A call that ended; notes when it is settled, and may do something then."""

    def __init__(self, settled: list[Ended], then: Callable[[], object] = lambda: None) -> None:
        self._settled = settled
        self._then = then

    def settle(self) -> None:
        self._settled.append(self)
        self._then()


def test_a_call_that_ends_while_others_are_settled_wakes_the_loop_again() -> None:
    loop, settled = Loop(), list[Ended]()
    completions = CompletionQueue(loop)  # type: ignore[arg-type]  # all of a loop that it uses
    last = Ended(settled)
    first = Ended(settled, lambda: completions.put(last))
    completions.put(first)
    loop.turn()
    assert settled == [first]
    loop.turn()
    assert settled == [first, last]


def test_calls_are_settled_in_the_order_in_which_they_ended() -> None:
    loop, settled = Loop(), list[Ended]()
    completions = CompletionQueue(loop)  # type: ignore[arg-type]
    calls = [Ended(settled) for _ in range(20)]
    for call in calls:
        completions.put(call)
    assert len(loop.ready) == 1
    loop.turn()
    assert settled == calls


def test_a_closed_loop_does_not_hurt_the_worker() -> None:
    loop = Loop()
    loop.closed = True
    CompletionQueue(loop).put(Ended([]))  # type: ignore[arg-type]


def test_a_worker_outlives_a_loop_that_was_closed_during_its_call() -> None:
    entered, release = threading.Event(), threading.Event()
    threads: list[str] = []

    def stay() -> None:
        threads.append(threading.current_thread().name)
        entered.set()
        release.wait(DEADLINE)

    async def leave_without_the_result() -> None:
        asyncio.ensure_future(offload(stay, abandon_on_cancel=True)())  # noqa: RUF006  # left on purpose
        while not entered.is_set():  # noqa: ASYNC110  # set in a thread
            await asyncio.sleep(0.0005)

    async def next_thread() -> str:
        def name() -> str:
            release.wait(DEADLINE)
            return threading.current_thread().name

        one = offload(name)
        task = asyncio.ensure_future(one())
        await turns()
        release.set()
        return await task

    asyncio.run(leave_without_the_result())
    assert asyncio.run(next_thread()).startswith("hybridrt-private")
    assert len(threads) == 1


@pytest.mark.race
async def test_no_wake_up_is_lost_with_many_threads() -> None:
    async with Runtime(max_workers=4, policy="paper") as runtime:  # four at once, without a look at them
        meeting = threading.Barrier(4)

        def meet(number: int) -> int:
            meeting.wait(DEADLINE)
            return number

        for _ in range(3):
            tasks = [runtime.offload(meet, n) for n in range(4)] + [
                runtime.offload(abs, -n) for n in range(20)
            ]
            assert await asyncio.gather(*tasks) == [*range(4), *range(20)]


@pytest.mark.race
def test_no_wake_up_is_lost_between_threads_and_the_loop() -> None:
    """Four threads hand over while a fifth turns the loop: at the end nothing is left behind."""
    loop, settled = Loop(), list[Ended]()
    completions = CompletionQueue(loop)  # type: ignore[arg-type]
    threads = [
        threading.Thread(target=lambda: [completions.put(Ended(settled)) for _ in range(25)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        loop.turn()
    loop.turn()
    loop.turn()
    assert len(settled) == 100


@pytest.mark.parametrize("ended", [True, False])
async def test_a_call_that_is_cancelled_ends_although_the_wake_up_of_its_loop_was_lost(ended: bool) -> None:
    """As where a handler of SIGTERM raises `SystemExit` when the loop is about to settle."""
    async with sole_worker() as runtime, Gate() as gate:
        task = await hold(runtime, gate)
        completions = completions_of(asyncio.get_running_loop())
        completions._scheduled = True
        if ended:
            gate.release()
            wait_without_turning(lambda: len(completions._done) == 1)
        task.cancel()
        await turns()
        gate.release()
        await asyncio.wait({task}, timeout=DEADLINE)
        assert task.cancelled()


async def test_a_loop_that_could_not_be_woken_is_woken_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(BaseException): ...

    class Ended:
        state = DONE
        settled = False

        def settle(self) -> None:
            self.settled = True

        started_ns = queued_ns = 0

    loop = asyncio.get_running_loop()
    completions = CompletionQueue(loop)
    first, second = Ended(), Ended()

    def kill(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_soon_threadsafe", kill)
        with pytest.raises(Killed):
            completions.put(first)  # type: ignore[arg-type]
    completions.put(second)  # type: ignore[arg-type]
    await turns()
    assert (first.settled, second.settled) == (True, True)


def test_an_error_that_no_loop_is_left_to_hear_of_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    entered, release = threading.Event(), threading.Event()

    def fail() -> None:
        entered.set()
        assert release.wait(DEADLINE)
        raise LookupError("nobody hears")

    async def leave_without_the_result() -> None:
        asyncio.ensure_future(offload(fail, abandon_on_cancel=True)())  # noqa: RUF006  # left on purpose
        while not entered.is_set():  # noqa: ASYNC110  # set in a thread
            await asyncio.sleep(0.0005)

    asyncio.run(leave_without_the_result())
    release.set()
    until(lambda: "fail raised after its event loop was closed" in caplog.text, "the error is logged")
    assert "nobody hears" in caplog.text
