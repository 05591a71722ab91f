"""Ctrl-C at chosen points of the program's own steps, in this process."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

import hybridrt
from hybridrt import Runtime, offload
from hybridrt.loop.call import LoopCall
from hybridrt.loop.interrupts import ctrl_c_held_back
from hybridrt.pool import scheduler
from hybridrt.pool.state import Pool
from hybridrt.pool.worker import WorkerThread
from tests.conftest import LOOPS
from tests.loop.support import turns

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="asyncio hears of SIGINT otherwise there")

Main = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Main], None]


def with_run(loop: str) -> Run:
    return lambda main: hybridrt.run(main(), loop=loop, shutdown_timeout=1.0)  # type: ignore[arg-type]


def with_asyncio(loop: str) -> Run:
    async def in_runtime(main: Main) -> None:
        async with Runtime(shutdown_timeout=1.0):
            await main()

    def run(main: Main) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(in_runtime(main))

    return run


@pytest.fixture(params=[with_run, with_asyncio], ids=["run", "asyncio.run"])
def run(request: pytest.FixtureRequest, loop: str) -> Run:
    """Runs a main within a runtime."""
    chosen: Run = request.param(loop)
    return chosen


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    """The name of a loop."""
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def handler_is_put_back() -> Iterator[None]:
    """Whatever happens, SIGINT is handled as before afterwards."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    yield
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    assert found is signal.default_int_handler


def press(times: int) -> None:
    """Press Ctrl-C; the handlers run at once."""
    for _ in range(times):
        signal.raise_signal(signal.SIGINT)


@contextmanager
def pressing(owner: Any, name: str, times: int) -> Iterator[None]:
    """Press Ctrl-C as soon as something in this thread calls `owner.name`."""
    original, thread = getattr(owner, name), threading.get_ident()
    todo = [times]

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if todo and threading.get_ident() == thread:
            press(todo.pop())
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        yield
    assert not todo, "nothing called it"


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize(
    "point",
    [
        (scheduler, "admits_at_once_locked"),
        (WorkerThread, "start"),
        (threading.Thread, "start"),
        (LoopCall, "settle"),
    ],
    ids=lambda point: f"{point[0].__name__}.{point[1]}",
)
def test_ctrl_c_in_the_middle_of_a_step_lets_the_step_end(
    run: Run, point: tuple[Any, str], times: int
) -> None:
    pools: list[Pool] = []

    async def main() -> None:
        pools.append(Runtime.current().executor._pool)
        await asyncio.gather(*(offload(abs)(-n) for n in range(10)))
        while True:
            await asyncio.gather(*(offload(threading.Event().wait)(0.001) for _ in range(10)))

    with pressing(*point, times), pytest.raises(KeyboardInterrupt):
        run(main)
    (pool,) = pools
    pool.join()
    tally = pool.tally
    assert tally.submitted == tally.completed + tally.failed + tally.cancelled
    assert (pool.busy, pool.waiting, pool.queued, len(pool.roster.workers)) == (0, 0, 0, 0)


def test_ctrl_c_in_the_program_s_own_code_strikes_there(run: Run) -> None:
    told: list[BaseException] = []

    async def main() -> None:
        try:
            press(2)
        except KeyboardInterrupt as error:
            told.append(error)
            raise

    with pytest.raises(KeyboardInterrupt):
        run(main)
    assert len(told) == 1


def test_leaving_by_sys_exit_puts_the_handler_back(run: Run) -> None:
    async def main() -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        run(main)


def test_a_runtime_that_outlasts_the_run_in_which_it_was_opened_puts_the_handler_back(loop: str) -> None:
    """As one of an asynchronous fixture."""
    runtime = Runtime()
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(runtime.__aenter__())
        runner.run(runtime.aclose())


def test_of_two_runtimes_the_one_that_was_opened_first_may_close_first(loop: str) -> None:
    """As those of two asynchronous fixtures."""
    first, second = Runtime(), Runtime()
    with (
        asyncio.Runner(loop_factory=LOOPS[loop]) as outer,
        asyncio.Runner(loop_factory=LOOPS[loop]) as inner,
    ):
        outer.run(first.__aenter__())
        inner.run(second.__aenter__())
        outer.run(first.aclose())
        inner.run(second.aclose())


@pytest.mark.parametrize("ended", [None, asyncio.CancelledError], ids=["returned", "was cancelled"])
def test_ctrl_c_strikes_a_later_run_than_that_in_which_the_runtime_was_opened(
    loop: str, ended: type[BaseException] | None
) -> None:
    runtime = Runtime()

    async def begin() -> None:
        await runtime.__aenter__()
        if ended is not None:
            raise ended

    async def pressed() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await turns(20)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        with nullcontext() if ended is None else pytest.raises(ended):
            runner.run(begin())
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                runner.run(pressed())
        runner.run(runtime.aclose())


def test_ctrl_c_in_the_last_turn_of_a_run_leaves_nothing_that_ends_its_close(loop: str) -> None:
    async def main() -> None:
        (supervisor,) = asyncio.all_tasks() - {asyncio.current_task()}
        running = asyncio.get_running_loop()

        def strike_at_the_end() -> None:
            if supervisor.done():  # what stops the loop is to run in the next turn
                raise KeyboardInterrupt
            running.call_soon(strike_at_the_end)

        running.call_soon(strike_at_the_end)

    with pytest.raises(KeyboardInterrupt):
        hybridrt.run(main(), loop=loop)  # type: ignore[arg-type]


def test_a_handler_that_the_program_sets_stays(run: Run) -> None:
    pressed: list[int] = []

    async def main() -> None:
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
        press(1)

    run(main)
    press(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert pressed == [signal.SIGINT] * 2


def test_what_is_ignored_stays_ignored(run: Run) -> None:
    async def main() -> None:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        press(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(main)
    finally:
        assert signal.signal(signal.SIGINT, signal.default_int_handler) is signal.SIG_IGN


def test_a_loop_in_another_thread_has_nothing_to_do_with_it(run: Run) -> None:
    async def main() -> None:
        assert await offload(abs)(-1) == 1

    thread = threading.Thread(target=run, args=(main,))
    thread.start()
    thread.join()


@pytest.mark.parametrize(("times", "ended"), [(1, [True]), (2, [])], ids=["once", "twice"])
def test_a_block_ends_before_ctrl_c_ends_the_program_unless_it_is_pressed_again(
    times: int, ended: list[bool]
) -> None:
    found: list[bool] = []

    def block() -> None:
        with ctrl_c_held_back():
            press(times)
            found.append(True)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert found == ended
