"""Ctrl-C and calls that never end: each test is a process of its own, which must end by itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import IO

import pytest

import hybridrt
from tests.conftest import LOOPS
from tests.loop.support import DEADLINE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT"),
    pytest.mark.parametrize("loop", list(LOOPS)),
]

ROOT = str(Path(hybridrt.__file__).resolve().parents[1])
NOISE = (
    "never retrieved",
    "never awaited",
    "was destroyed",
    "Exception ignored",
    "Unhandled",
    "lost sys.stderr",
)
SETUP = """
import asyncio, logging, sys, threading, time
import hybridrt
from hybridrt import offload

never, entered = threading.Event(), threading.Event()

def say(text):
    print(text, flush=True)

def plainly_stuck():
    say("stuck")
    entered.set()
    never.wait()

stuck = offload(plainly_stuck)
stuck_and_abandoned = offload(plainly_stuck, abandon_on_cancel=True)

async def stuck_until_the_close():
    try:
        await stuck()
    except hybridrt.RuntimeClosedError:
        say("failed")

async def start_stuck_call():
    task = asyncio.ensure_future(stuck_until_the_close())
    while not entered.is_set():
        await asyncio.sleep(0.001)
    return task

def run(main, **options):
    try:
        say(f"returned {hybridrt.run(main, loop=sys.argv[1], **options)}")
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(7)
"""


class Script:
    """A running script; what it prints, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._output: IO[str] = process.stdout  # type: ignore[assignment]  # it is a pipe

    def expect(self, line: str) -> None:
        """Wait until the script prints `line`."""
        got = self._output.readline()
        if got != line + "\n":
            self.process.kill()
            raise AssertionError(f"expected {line!r}, got {got!r} and then {self.process.communicate()}")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Wait for the end of the process; return its status and what it wrote to stderr."""
        rest, errors = self.process.communicate(timeout=DEADLINE)
        assert rest == ""
        assert not any(noise in errors for noise in NOISE), errors
        return self.process.returncode, errors


@pytest.fixture
def start(loop: str) -> Callable[[str], Script]:
    """Start a script on a loop; it is killed after the test if it has not ended."""
    processes: list[subprocess.Popen[str]] = []

    def start(text: str) -> Script:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", SETUP + dedent(text), loop],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return Script(process)

    yield start  # type: ignore[misc]
    for process in processes:
        process.kill()
        process.communicate()


def test_ctrl_c_cancels_main(start: Callable[[str], Script]) -> None:
    script = start("""
        async def main():
            try:
                say("ready")
                await asyncio.Event().wait()
            finally:
                say("cancelled")

        run(main())
    """)
    script.expect("ready")
    script.interrupt()
    script.expect("cancelled")
    script.expect("interrupted")
    assert script.end() == (7, "")


def test_ctrl_c_ends_the_process_as_it_does_with_asyncio(start: Callable[[str], Script]) -> None:
    script = start("""
        async def main():
            say("ready")
            await asyncio.Event().wait()

        hybridrt.run(main(), loop=sys.argv[1])
    """)
    script.expect("ready")
    script.interrupt()
    status, errors = script.end()
    assert status == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_after_ctrl_c_main_may_end_in_its_own_way(start: Callable[[str], Script]) -> None:
    script = start("""
        async def main():
            try:
                say("ready")
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return await offload(len)("abc")

        run(main())
    """)
    script.expect("ready")
    script.interrupt()
    script.expect("returned 3")
    assert script.end() == (0, "")


def test_ctrl_c_lets_a_running_call_end(start: Callable[[str], Script]) -> None:
    script = start("""
        def work(loop, release):
            loop.call_soon_threadsafe(say, "running")
            release.wait()
            say("call ended")

        async def main():
            release = threading.Event()
            try:
                task = asyncio.ensure_future(offload(work)(asyncio.get_running_loop(), release))
                await asyncio.wait({task})
            finally:
                release.set()

        run(main())
    """)
    script.expect("running")
    script.interrupt()
    script.expect("call ended")
    script.expect("interrupted")
    assert script.end() == (7, "")


@pytest.mark.parametrize("call", ["stuck()", "asyncio.to_thread(plainly_stuck)", "stuck_and_abandoned()"])
def test_after_ctrl_c_a_stuck_call_is_named_and_left_at_the_deadline(
    start: Callable[[str], Script], call: str
) -> None:
    script = start(f"""
        async def main():
            await {call}

        run(main(), shutdown_timeout=0.1)
    """)
    script.expect("stuck")
    script.interrupt()
    script.expect("interrupted")
    status, errors = script.end()
    assert status == 7
    assert errors.count("still runs") == 1
    assert "__main__:plainly_stuck" in errors


def test_the_second_ctrl_c_leaves_at_once(start: Callable[[str], Script]) -> None:
    script = start("""
        async def main():
            call = asyncio.ensure_future(stuck())
            try:
                await asyncio.shield(call)
            except asyncio.CancelledError:
                say("cancelled once")
                await call

        run(main(), shutdown_timeout=3600)
    """)
    script.expect("stuck")
    script.interrupt()
    script.expect("cancelled once")
    script.interrupt()
    script.expect("interrupted")
    status, errors = script.end()
    assert status == 7
    assert errors.count("still runs") == 1
    assert "3.6e+03 s" not in errors  # no hour has passed


IGNORANT = """
async def main():
    say("ready")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            say("ignored")

run(main(), shutdown_timeout={timeout})
"""


def test_a_main_that_ignores_its_cancelling_is_left_at_the_deadline(start: Callable[[str], Script]) -> None:
    script = start(IGNORANT.format(timeout=0.1))
    script.expect("ready")
    script.interrupt()
    script.expect("ignored")
    script.expect("interrupted")
    status, errors = script.end()
    assert status == 7
    assert re.search(r"coroutine object main at .* goes on although it was cancelled", errors)


def test_a_main_that_ignores_its_cancelling_is_left_at_the_second_ctrl_c(
    start: Callable[[str], Script],
) -> None:
    script = start(IGNORANT.format(timeout=3600))
    script.expect("ready")
    script.interrupt()
    script.expect("ignored")
    script.interrupt()
    script.expect("interrupted")
    assert script.end()[0] == 7


def test_ctrl_c_while_the_runtime_closes_leaves_at_once(start: Callable[[str], Script]) -> None:
    script = start("""
        async def main():
            beside.append(await start_stuck_call())
            hybridrt.Runtime.current().background(closing())

        async def closing():
            while hybridrt.Runtime.current()._state == "open":
                await asyncio.sleep(0)
            say("closing")

        beside = []
        run(main(), shutdown_timeout=3600)
    """)
    script.expect("stuck")
    script.expect("closing")
    script.interrupt()
    script.expect("failed")
    script.expect("interrupted")
    status, errors = script.end()
    assert status == 7
    assert errors.count("still runs") == 1


def test_the_process_ends_though_a_call_is_stuck(start: Callable[[str], Script]) -> None:
    script = start("""
        async def main():
            beside.append(await start_stuck_call())
            return 1

        beside = []
        run(main(), shutdown_timeout=0.1)
    """)
    script.expect("stuck")
    script.expect("failed")
    script.expect("returned 1")
    status, errors = script.end()
    assert status == 0
    assert re.search(
        r"__main__:plainly_stuck still runs after [0-9.]+ s, at .*:[0-9]+ in wait; .* behind", errors
    )


def test_the_process_ends_though_a_call_of_a_plain_runtime_is_stuck(start: Callable[[str], Script]) -> None:
    script = start("""
        async def main():
            async with hybridrt.Runtime(shutdown_timeout=0.1):
                task = await start_stuck_call()
            await task

        asyncio.run(main())
    """)
    script.expect("stuck")
    script.expect("failed")
    assert script.end()[0] == 0


def test_the_process_ends_though_an_abandoned_call_is_stuck(start: Callable[[str], Script]) -> None:
    script = start("""
        async def main():
            try:
                await stuck_and_abandoned.options(timeout=0.2)()
            except TimeoutError:
                say("timeout")

        run(main(), shutdown_timeout=0.1)
    """)
    script.expect("stuck")
    script.expect("timeout")
    script.expect("returned None")
    assert script.end()[0] == 0


def test_exit_in_main_is_the_status_of_the_process(start: Callable[[str], Script]) -> None:
    script = start("""
        async def main():
            await offload(len)("abc")
            sys.exit(3)

        run(main())
    """)
    assert script.end() == (3, "")
