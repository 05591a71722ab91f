"""A child forked in the middle of everything starts clean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import hybridrt
from tests.conftest import LOOPS
from tests.loop.support import DEADLINE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

ROOT = str(Path(hybridrt.__file__).resolve().parents[1])
SETUP = """
import asyncio, os, signal, sys, threading, traceback, warnings
import hybridrt
from hybridrt import offload

warnings.simplefilter("ignore")  # 3.12 warns of any fork in a process with threads

def in_child(check):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0

def child_uses_offload():
    assert asyncio.run(offload(len)("abc")) == 3
    async def main():
        assert await asyncio.to_thread(len, "abcd") == 4
        return await hybridrt.Runtime.current().map(abs, range(50))
    assert hybridrt.run(main(), loop=sys.argv[1]) == list(range(50))
"""


def run_script(text: str, loop: str) -> None:
    """Run a script in a fresh interpreter, which must end by itself in good order."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SETUP + dedent(text), loop],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_child_of_a_process_with_a_running_runtime_can_offload_on_a_new_loop(loop: str) -> None:
    run_script(
        """
        async def main():
            release = threading.Event()
            calls = [asyncio.ensure_future(offload(release.wait)(30)) for _ in range(4)]
            await offload(len)("abc")
            pid = os.fork()
            if pid == 0:
                # The loop of the parent runs in this frame: the child's work is done in a thread of its own.
                status = [1]
                def work():
                    try:
                        child_uses_offload()
                        status[0] = 0
                    except BaseException:
                        traceback.print_exc()
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
                sys.stderr.flush()
                os._exit(status[0])
            assert os.waitpid(pid, 0)[1] == 0
            release.set()
            assert await asyncio.gather(*calls) == [True] * 4
            assert await offload(len)("ab") == 2

        hybridrt.run(main(), loop=sys.argv[1])
        """,
        loop,
    )


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_child_of_a_process_with_a_running_runtime_writes_what_it_has_learned(
    loop: str, tmp_path: Path
) -> None:
    run_script(
        f"""
        from pathlib import Path
        from hybridrt.remembered import remembered

        remembered.path = Path({str(tmp_path / "profile.json")!r})

        def use_offload_in_a_thread():  # the loop of the parent runs in this frame
            thread = threading.Thread(target=child_uses_offload)
            thread.start()
            thread.join()
            assert remembered.path.exists()

        async def main():
            in_child(use_offload_in_a_thread)

        hybridrt.run(main(), loop=sys.argv[1])
        """,
        loop,
    )


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_child_of_a_process_that_has_offloaded_can_offload(loop: str) -> None:
    run_script(
        """
        asyncio.run(offload(len)("abc"))
        in_child(child_uses_offload)
        asyncio.run(offload(len)("abc"))
        """,
        loop,
    )


def test_a_child_forked_while_another_thread_offloads_can_offload() -> None:
    run_script(
        """
        stop = threading.Event()

        async def busy():
            while not stop.is_set():
                await asyncio.gather(*(offload(abs)(-n) for n in range(20)))

        thread = threading.Thread(target=asyncio.run, args=(busy(),))
        thread.start()
        for _ in range(5):
            in_child(child_uses_offload)
        stop.set()
        thread.join()
        """,
        "asyncio",
    )


def test_calls_queued_in_the_parent_do_not_run_in_the_child() -> None:
    run_script(
        """
        entered, release = threading.Event(), threading.Event()
        ran = []

        def hold():
            entered.set()
            release.wait(30)

        async def main():
            async with hybridrt.Runtime(max_workers=1) as runtime:
                holding = asyncio.ensure_future(runtime.offload(hold))
                queued = asyncio.ensure_future(runtime.offload(ran.append, 1))
                await asyncio.to_thread_elsewhere(entered.wait)
                def check():
                    assert sum(runtime.statistics().queued.values()) == 0
                    assert runtime.statistics().workers == 0
                    assert runtime.executor.submit(len, "abc").result(30) == 3
                    assert ran == []
                in_child(check)
                release.set()
                await asyncio.gather(holding, queued)
                assert ran == [1]

        async def elsewhere(fn):
            with __import__("concurrent.futures").futures.ThreadPoolExecutor(1) as pool:
                return await asyncio.get_running_loop().run_in_executor(pool, fn)

        asyncio.to_thread_elsewhere = elsewhere
        asyncio.run(main())
        """,
        "asyncio",
    )


@pytest.mark.parametrize("handler", ["signal.default_int_handler", "print"])
@pytest.mark.parametrize("loop", list(LOOPS))
def test_ctrl_c_in_a_child_goes_to_what_handled_it_before_the_runtime(loop: str, handler: str) -> None:
    run_script(
        f"""
        def check():
            assert signal.getsignal(signal.SIGINT) is {handler}, signal.getsignal(signal.SIGINT)

        async def main():
            in_child(check)
            await offload(in_child)(check)

        signal.signal(signal.SIGINT, {handler})
        hybridrt.run(main(), loop=sys.argv[1])
        check()
        """,
        loop,
    )
