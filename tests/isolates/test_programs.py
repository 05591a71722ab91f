"""Isolates at the ends of a program: exit, fork, a parent that is killed; each in a program of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import psutil
import pytest

from hybridrt.isolates import child
from hybridrt.values import Isolation
from tests.loop.support import DEADLINE

pytestmark = pytest.mark.slow

_CLOSED = 1 << 20
"""A descriptor that nothing has."""
ROOT = Path(__file__).parents[2]
SETUP = """
import asyncio, os, signal, sys, threading, warnings
import hybridrt
from tests.isolates import far
from tests.isolates.support import push, run_isolated

isolation = sys.argv[1]
"""


def start(text: str, *args: str) -> subprocess.Popen[str]:
    """Start a program in a fresh interpreter."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SETUP + dedent(text), *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(text: str, *args: str) -> str:
    """Run a program, which must end by itself in good order and without complaint; return what it printed."""
    with start(text, *args) as program:
        try:
            printed, complained = program.communicate(timeout=DEADLINE)
        finally:
            program.kill()
    assert (program.returncode, complained) == (0, "")
    return printed


def ended(pid: int) -> bool:
    """Wait until a process has ended."""
    try:
        psutil.Process(pid).wait(DEADLINE)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired:
        return False
    return True


def test_a_program_that_leaves_its_executor_open_ends_and_so_do_its_isolates(isolation: Isolation) -> None:
    printed = run(
        """
        print(asyncio.run(run_isolated(far.pid, isolation=isolation)))
        """,
        isolation,
    )
    assert isolation == "interpreter" or ended(int(printed))


def test_a_script_without_a_guard_of_its_main_module_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        dedent(
            """
            import hybridrt
            from tests.isolates import far
            from tests.isolates.support import run_isolated
            print("imported")
            print(hybridrt.run(run_isolated(far.add, 1)))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (done.stdout, done.stderr) == ("imported\n2\n", "")


@pytest.mark.skipif(sys.version_info < (3, 14), reason="there no thread inherits a context")
def test_threads_that_stay_do_not_keep_the_context_of_the_call_that_started_them(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_THREAD_INHERIT_CONTEXT", "1")
    printed = run(
        """
        import contextvars, gc, weakref
        from hybridrt.isolates import isolate_pool

        class Thing: ...

        variable = contextvars.ContextVar("variable")
        lending = isolate_pool.interpreters if isolation == "interpreter" else isolate_pool.processes

        async def call(starts):
            variable.set(Thing())
            await starts()
            return weakref.ref(variable.get())

        async def start_isolate():
            lending.give_back(lending.lease())

        async def main():
            for starts in (lambda: hybridrt.offload(len)(""), start_isolate):
                remains = await asyncio.create_task(call(starts))
                for _ in range(50):
                    gc.collect()
                    if remains() is None:
                        break
                    await asyncio.sleep(0.01)
                print(remains())

        hybridrt.run(main())
        """,
        isolation,
    )
    assert printed == "None\nNone\n"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="there a program has no sub-interpreters")
def test_a_sub_interpreter_without_daemon_threads_may_have_processes() -> None:
    printed = run(
        """
        from concurrent import interpreters

        interpreter = interpreters.create()
        interpreter.exec('''if True:
            import asyncio, os
            import hybridrt
            there = hybridrt.offload(os.getpid, pure=True, where="isolate", isolation="process")
            print(asyncio.run(there()))
        ''')
        interpreter.close()
        """,
        "process",
    )
    assert ended(int(printed))


def test_a_call_that_runs_when_main_ends_is_waited_for(isolation: Isolation, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "entered")
    os.mkfifo(tmp_path / "release")
    program = start(
        """
        from hybridrt.loop.binding import private_executor
        from hybridrt.isolates.remote_invocation import RemoteInvocation, isolate_pool_for
        from hybridrt.isolates.isolate_pool import used_by
        from hybridrt.isolates.reference import refer

        reference = refer(far.hold)
        executor = hybridrt.AdaptiveThreadPoolExecutor()
        used_by(executor._pool)
        carrier = RemoteInvocation(reference, isolate_pool_for(reference, isolation))
        future = executor.submit(carrier, sys.argv[2] + "/entered", sys.argv[2] + "/release", "done")
        future.add_done_callback(lambda future: print(future.result()))
        """,
        isolation,
        str(tmp_path),
    )
    with program:
        (tmp_path / "entered").read_text()
        (tmp_path / "release").write_text("go")
        printed, complained = program.communicate(timeout=DEADLINE)
    assert (program.returncode, printed, complained) == (0, "done\n", "")


def test_a_call_that_was_left_behind_does_not_keep_the_program_alive(isolation: Isolation) -> None:
    with start(
        """
        warnings.simplefilter("ignore")  # 3.14 warns of an interpreter that still runs

        async def main():
            runtime = hybridrt.install(shutdown_timeout=0.0)
            call = push(far.print_pid_and_spin, isolation=isolation)
            await asyncio.to_thread(sys.stdin.readline)
            call.expire(0.0)
            await asyncio.wait({call})
            call.exception()
            await runtime.aclose()

        asyncio.run(main())
        """,
        isolation,
    ) as program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
        program.communicate("expire\n", timeout=DEADLINE)
    assert program.returncode == 0
    assert ended(worker)


def test_a_program_that_ends_while_its_isolates_start_does_so_in_good_order(isolation: Isolation) -> None:
    """CPython 3.14 warns of interpreters that are left at its end, and may crash if one of them runs."""
    run(
        """
        from hybridrt.loop.binding import current_binding
        from hybridrt.loop.isolated_call import warm_up

        async def main():
            fn = hybridrt.offload(far.add, pure=True)
            await fn(1)
            warm_up(current_binding(), fn._router, isolation)
            await asyncio.sleep(0.1)

        hybridrt.run(main())
        """,
        isolation,
    )


def test_a_worker_ends_in_the_middle_of_a_call_when_its_parent_is_killed() -> None:
    with start("asyncio.run(run_isolated(far.print_pid_and_spin))", "process") as program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
        program.send_signal(signal.SIGKILL)
        assert ended(worker)
        program.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the call ends first")
def test_a_call_that_keeps_the_gil_ends_with_its_program_although_a_forked_child_lives() -> None:
    with start(
        """
        warnings.simplefilter("ignore")  # 3.12 warns of any fork in a process with threads

        async def main():
            await run_isolated(far.add, 1)
            call = push(far.print_pid_and_keep_the_gil)
            await asyncio.to_thread(sys.stdin.readline)
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            sys.stdin.read()
            os._exit(0)

        asyncio.run(main())
        """,
        "process",
    ) as program:
        assert program.stdout is not None
        worker = psutil.Process(int(program.stdout.readline()))
        try:
            program.stdin.write("fork\n")  # type: ignore[union-attr]
            program.stdin.flush()  # type: ignore[union-attr]
            assert ended(worker.pid)
        finally:
            if worker.is_running():
                worker.kill()
        assert program.communicate(timeout=DEADLINE)[1] == ""


def test_ctrl_c_ends_a_program_without_a_word_from_its_workers() -> None:
    with start(
        """
        try:
            hybridrt.run(run_isolated(far.print_pid_and_spin), shutdown_timeout=0.0)
        except KeyboardInterrupt:
            pass
        """,
        "process",
    ) as program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
        for pid in (worker, program.pid):
            os.kill(pid, signal.SIGINT)
        complained = program.communicate(timeout=DEADLINE)[1]
    assert ended(worker)
    assert "Traceback" not in complained


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_isolates_of_its_own_and_leaves_those_of_its_parent_alone(
    isolation: Isolation,
) -> None:
    printed = run(
        """
        warnings.simplefilter("ignore")  # 3.12 warns of any fork in a process with threads

        async def main():
            first = await run_isolated(far.count_calls, isolation=isolation)
            child = os.fork()
            if not child:
                os._exit(in_child())
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            return first, await run_isolated(far.count_calls, isolation=isolation)

        def in_child():
            asyncio._set_running_loop(None)
            counted = asyncio.run(run_isolated(far.count_calls, isolation=isolation))
            hybridrt.testing.reset()
            return counted - 1

        import hybridrt.testing
        print(asyncio.run(main()))
        """,
        isolation,
    )
    # An interpreter must not be there when a process forks, so it was ended and another one was started.
    assert printed == ("(1, 2)\n" if isolation == "process" else "(1, 1)\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_a_function_forks_and_that_returns_ends_without_a_word() -> None:
    assert run("print(asyncio.run(run_isolated(far.fork_and_return)))", "process") == "0\n"


def test_what_a_worker_prints_goes_where_its_parent_prints() -> None:
    printed = run(
        "asyncio.run(run_isolated(far.add, 1)); asyncio.run(run_isolated(far.say, 'hello'))", "process"
    )
    assert printed == "hello\n"


def test_what_a_call_has_printed_is_not_lost_when_a_later_one_ends_the_worker() -> None:
    printed = run(
        """
        async def main():
            await run_isolated(far.say, "hello", " ")
            try:
                await run_isolated(far.end, 3)
            except hybridrt.WorkerLostError:
                print("lost")

        asyncio.run(main())
        """,
        "process",
    )
    assert printed == "hello lost\n"


def test_what_a_worker_prints_does_not_get_into_its_wire_where_nothing_else_is_open() -> None:
    printed = run(
        """
        from hybridrt.isolates.isolate_pool import processes
        from hybridrt.isolates.packing import pack
        from hybridrt.isolates.reference import refer

        kept = os.dup(1)
        os.closerange(0, 3)
        worker = processes.lease()
        worker.run(pack((tuple(refer(far.say)), ("lost",), {})))
        os.write(kept, b"no answer was lost")
        """,
        "process",
    )
    assert printed == "no answer was lost"


@pytest.mark.skipif(sys.platform == "win32", reason="there no thread watches the wire")
def test_a_worker_that_has_closed_its_wire_is_left_to_its_exit_handlers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(child, "os", SimpleNamespace(_exit=ended.append))
    parents, own = socket.socketpair()
    with parents, own:
        child._leave_with_parent(_CLOSED, 0)
        assert not ended
        parents.close()
        child._leave_with_parent(own, 0)
    assert ended == [1]
