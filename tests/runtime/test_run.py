"""`run`: like `asyncio.run`, with a runtime installed."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import hybridrt
from hybridrt import Runtime, offload
from tests.conftest import LOOPS
from tests.loop.support import DEADLINE
from tests.runtime.test_background import Wrapped

VARIABLE = contextvars.ContextVar("variable", default="unset")
ON_EACH_LOOP = pytest.mark.parametrize("loop", list(LOOPS))


async def answer() -> int:
    return await offload(int)("42")


async def fail(error: BaseException) -> None:
    raise error


async def loop_module() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


@ON_EACH_LOOP
def test_run_returns_what_main_returns(loop: Any) -> None:
    assert hybridrt.run(answer(), loop=loop) == 42


@ON_EACH_LOOP
def test_run_raises_what_main_raises(loop: Any) -> None:
    error = LookupError("x")
    with pytest.raises(LookupError) as caught:
        hybridrt.run(fail(error), loop=loop)
    assert caught.value is error


@ON_EACH_LOOP
def test_run_takes_what_asyncio_takes_for_a_coroutine(loop: Any) -> None:
    assert hybridrt.run(Wrapped(answer()), loop=loop) == 42


@ON_EACH_LOOP
def test_a_main_that_is_cancelled_raises_as_with_asyncio(loop: Any) -> None:
    with pytest.raises(asyncio.CancelledError):
        hybridrt.run(fail(asyncio.CancelledError()), loop=loop)


@pytest.mark.skipif(sys.platform == "win32", reason="asyncio hears of SIGINT otherwise there")
@ON_EACH_LOOP
def test_ctrl_c_in_the_last_step_of_main_is_not_lost(loop: Any) -> None:
    async def main() -> str:
        signal.raise_signal(signal.SIGINT)
        return "as if nothing had been"

    with pytest.raises(KeyboardInterrupt):
        hybridrt.run(main(), loop=loop)


@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
def test_ctrl_c_within_the_end_of_uvloop_is_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvloop")
    close = socket.socket.close

    async def main() -> None:
        def strike(closed: socket.socket) -> None:
            monkeypatch.setattr(socket.socket, "close", close)
            close(closed)
            raise KeyboardInterrupt

        monkeypatch.setattr(socket.socket, "close", strike)  # uvloop closes its own where it ends

    with pytest.raises(KeyboardInterrupt):
        hybridrt.run(main(), loop="uvloop")
    assert hybridrt.run(asyncio.sleep(0.0, 5), loop="uvloop") == 5


@ON_EACH_LOOP
def test_an_error_in_the_last_step_of_main_is_told_rather_than_ctrl_c(loop: Any) -> None:
    async def main() -> None:
        signal.raise_signal(signal.SIGINT)
        raise LookupError

    with pytest.raises(LookupError):
        hybridrt.run(main(), loop=loop)


@ON_EACH_LOOP
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_leaving_main_leaves_run(loop: Any, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        hybridrt.run(fail(error), loop=loop)
    assert caught.value.args == error.args


@ON_EACH_LOOP
def test_calls_that_run_when_main_exits_get_their_time(loop: Any) -> None:
    """`sys.exit` in main is an orderly end, not a second Ctrl-C."""
    entered, ended = threading.Event(), threading.Event()
    tasks = []

    def work() -> None:
        entered.set()
        pause.wait(0.05)
        ended.set()

    async def main() -> None:
        tasks.append(asyncio.ensure_future(offload(work)()))
        while not entered.is_set():  # noqa: ASYNC110  # set in a thread
            await asyncio.sleep(0.0005)
        sys.exit(3)

    pause = threading.Event()
    with pytest.raises(SystemExit):
        hybridrt.run(main(), loop=loop)
    assert ended.is_set()


def test_the_loop_is_the_one_asked_for() -> None:
    assert hybridrt.run(loop_module(), loop="asyncio") == "asyncio"
    if "uvloop" in LOOPS:
        assert hybridrt.run(loop_module(), loop="uvloop") == "uvloop"


def test_auto_is_uvloop_where_it_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hybridrt.run(loop_module()) == list(LOOPS)[-1]
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert hybridrt.run(loop_module()) == "asyncio"


def test_an_error_at_the_end_of_the_loop_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail_to_start(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio.BaseEventLoop, "shutdown_default_executor", fail_to_start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        hybridrt.run(answer(), loop="asyncio")


@ON_EACH_LOOP
def test_what_main_returns_is_not_lost_where_no_thread_can_start_any_more(
    loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> int:
        value = await answer()
        monkeypatch.setattr(threading.Thread, "start", refuse)
        return value

    assert hybridrt.run(main(), loop=loop) == 42


@ON_EACH_LOOP
def test_a_task_that_main_leaves_may_still_use_the_default_executor(loop: Any) -> None:
    async def leave_something() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(await asyncio.to_thread(int, "7"))

    async def main() -> None:
        tasks.append(asyncio.create_task(leave_something()))
        await asyncio.sleep(0)

    told: list[int] = []
    tasks: list[asyncio.Task[None]] = []
    hybridrt.run(main(), loop=loop)
    assert told == [7]


@pytest.mark.skipif("uvloop" not in LOOPS, reason="asyncio's loop does not mind")
@pytest.mark.parametrize("descriptor", [0, 1, 2])
def test_auto_is_asyncio_where_a_standard_file_is_closed(descriptor: int, tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = """if True:
        import asyncio, os, sys, hybridrt
        from pathlib import Path
        async def main():
            return await hybridrt.offload(type)(asyncio.get_running_loop())
        os.close(int(sys.argv[1]))
        Path(sys.argv[2]).write_text(hybridrt.run(main()).__module__)
    """
    subprocess.run([sys.executable, "-c", code, str(descriptor), str(said)], check=True, timeout=30)
    assert said.read_text().startswith("asyncio.")


def test_uvloop_must_be_there_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    main = answer()
    with pytest.raises(ImportError, match="uvloop"):
        hybridrt.run(main, loop="uvloop")
    assert main.cr_frame is None


@ON_EACH_LOOP
def test_main_runs_within_the_runtime(loop: Any) -> None:
    async def main() -> tuple[int, str]:
        thread = await asyncio.to_thread(threading.current_thread)
        return Runtime.current().statistics().max_workers, thread.name.partition("_")[0]

    assert hybridrt.run(main(), loop=loop, max_workers=7) == (7, "hybridrt")


def test_the_debug_mode_is_passed_on() -> None:
    async def debug() -> bool:
        return asyncio.get_running_loop().get_debug()

    assert hybridrt.run(debug(), loop="asyncio", debug=True) is True
    assert hybridrt.run(debug(), loop="asyncio", debug=False) is False


@ON_EACH_LOOP
def test_main_sees_the_context_variables_of_its_caller(loop: Any) -> None:
    async def main() -> str:
        return await offload(VARIABLE.get)()

    token = VARIABLE.set("of the caller")
    assert hybridrt.run(main(), loop=loop) == "of the caller"
    VARIABLE.reset(token)


@ON_EACH_LOOP
def test_one_run_after_the_other_leaves_no_thread(loop: Any) -> None:
    before = threading.active_count()
    for _ in range(3):
        assert hybridrt.run(answer(), loop=loop) == 42
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("hybridrt_")]
    assert threading.active_count() <= before + 1  # the governor rests


@ON_EACH_LOOP
def test_run_works_in_another_thread(loop: Any) -> None:
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(hybridrt.run(answer(), loop=loop)))
    thread.start()
    thread.join(DEADLINE)
    assert answers == [42]


@ON_EACH_LOOP
def test_background_tasks_are_drained_before_run_returns(loop: Any) -> None:
    done: list[int] = []

    async def later() -> None:
        await asyncio.sleep(0)
        done.append(await offload(int)("7"))

    async def main() -> None:
        Runtime.current().background(later())

    hybridrt.run(main(), loop=loop)
    assert done == [7]


@pytest.mark.parametrize("main", [answer, 5, None], ids=["function", "number", "none"])
def test_what_is_no_coroutine_is_refused(main: Any) -> None:
    with pytest.raises(TypeError, match=r"run needs a coroutine, as in run\(main\(\)\), got "):
        hybridrt.run(main)


def test_an_unknown_loop_is_refused_and_main_closed() -> None:
    main = answer()
    with pytest.raises(ValueError, match="loop must be 'auto', 'asyncio' or 'uvloop', got 'trio'"):
        hybridrt.run(main, loop="trio")  # type: ignore[arg-type]  # the mistake under test
    assert main.cr_frame is None


@pytest.mark.parametrize("options", [{"max_workers": 0}, {"threads": 4}], ids=["value", "name"])
def test_a_wrong_option_is_refused_and_main_closed(options: dict[str, int]) -> None:
    main = answer()
    with pytest.raises((TypeError, ValueError)):
        hybridrt.run(main, **options)  # type: ignore[arg-type]
    assert main.cr_frame is None


async def test_run_is_refused_while_a_loop_runs_in_this_thread() -> None:
    main = answer()
    with pytest.raises(RuntimeError, match="running event loop"):
        hybridrt.run(main)
    assert main.cr_frame is None
