"""A forked child starts clean, whatever its parent held at that moment: permits, lanes, gates, a failure.

Each script runs in a fresh interpreter, forks while its parent is in the middle of calls, and lets the
child use what it inherited.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import hybridrt
from hybridrt.batches.figures import BatchFigures

from .support import Stage

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork"),
    pytest.mark.slow,
]

ROOT = str(Path(hybridrt.__file__).resolve().parents[1])

SETUP = '''
import asyncio, os, threading, warnings
import hybridrt
from hybridrt.executor.budget import shared

warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads is what this is about
DEADLINE = 20

class Gate:
    def __init__(self):
        self.started, self.open = threading.Event(), threading.Event()

    def __call__(self, value=None):
        self.started.set()
        assert self.open.wait(DEADLINE), "expected the gate to be opened"
        return value

def in_child(body):
    """Run `body` in a forked child; return its exit status, and a time-out as a failure."""
    child = os.fork()
    if child == 0:
        import faulthandler
        faulthandler.dump_traceback_later(DEADLINE, exit=True)
        try:
            body()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
'''


def run(script: str) -> str:
    """Run a script in a fresh interpreter, which must end well; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SETUP + dedent(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_permits_that_calls_of_the_parent_hold_are_free_in_the_child() -> None:
    out = run(
        """
        executor = hybridrt.AdaptiveThreadPoolExecutor()
        stop = threading.Event()
        started = threading.Event()

        def spins():
            started.set()
            while not stop.is_set():
                pass

        running = executor.submit(spins)
        started.wait(DEADLINE)

        def body():
            assert shared.permits.held == [0, 0, 0, 0], shared.permits.held
            assert executor.submit(sum, range(10)).result(DEADLINE) == 45
            assert not shared.waiting_for_permit

        print(in_child(body))
        stop.set()
        running.result(DEADLINE)
        executor.shutdown()
        """
    )
    assert out == "0\n"


def test_an_unknown_function_that_runs_in_the_parent_can_start_in_the_child() -> None:
    """Its one call that may run unjudged is the parent's."""
    out = run(
        """
        executor = hybridrt.AdaptiveThreadPoolExecutor()
        gate = Gate()
        running = executor.submit(gate, "parent")
        gate.started.wait(DEADLINE)
        profile = executor._pool.profiles.of(gate)
        profile.unclassified = 1  # as it is in the call's first milliseconds

        def body():
            assert profile.unclassified == 0
            gate.open.set()
            assert executor.submit(gate, "child").result(DEADLINE) == "child"
            assert executor.statistics().overdrafts == 0

        print(in_child(body))
        gate.open.set()
        running.result(DEADLINE)
        executor.shutdown()
        """
    )
    assert out == "0\n"


def test_a_lane_and_a_limit_that_calls_of_the_parent_hold_are_free_in_the_child() -> None:
    out = run(
        """
        gate = Gate()

        @hybridrt.offload(lane="database")
        def query(value):
            return gate(value)

        @hybridrt.offload(limit=1)
        def limited(value):
            return gate(value)

        async def main():
            tasks = [asyncio.create_task(query("parent")), asyncio.create_task(limited("parent")),
                     asyncio.create_task(query("waits at the gate"))]
            while not gate.started.is_set():
                await asyncio.sleep(0)
            print(await asyncio.get_running_loop().run_in_executor(None, in_child, body))
            gate.open.set()
            print(await asyncio.gather(*tasks))

        def body():
            gate.open.set()

            async def child():
                return await asyncio.gather(query("child"), query("again"), limited("child"))

            with asyncio.Runner() as runner:
                assert runner.run(asyncio.wait_for(child(), DEADLINE)) == ["child", "again", "child"]

        asyncio.run(main())
        """
    )
    assert out == "0\n['parent', 'parent', 'waits at the gate']\n"


def test_calls_that_the_parent_has_queued_are_not_counted_in_the_child() -> None:
    out = run(
        """
        executor = hybridrt.AdaptiveThreadPoolExecutor(1, queue_max=2)
        gate = Gate()
        running = executor.submit(gate)
        gate.started.wait(DEADLINE)
        queued = [executor.submit(len, "ab") for _ in range(2)]

        def body():
            statistics = executor.statistics()
            assert (statistics.workers, statistics.idle, statistics.running) == (0, 0, ())
            assert set(statistics.queued.values()) == {0}
            assert [executor.submit(len, "ab").result(DEADLINE) for _ in range(5)] == [2] * 5
            executor.shutdown()

        print(in_child(body))
        gate.open.set()
        print([future.result(DEADLINE) for future in queued])
        executor.shutdown()
        """
    )
    assert out == "0\n[2, 2]\n"


def test_a_lane_that_the_parent_was_about_to_add_can_be_used_in_the_child() -> None:
    out = run(
        """
        from hybridrt.pool import limiters

        gate = Gate()

        def add():
            with limiters._lock:
                limiters._begun["database"] = limiters.Limiter(1, "database")
                gate()

        adding = threading.Thread(target=add)
        adding.start()
        gate.started.wait(DEADLINE)

        def body():
            assert not limiters._begun
            assert asyncio.run(hybridrt.offload(len, lane="database")("ab")) == 2

        print(in_child(body))
        gate.open.set()
        adding.join()
        """
    )
    assert out == "0\n"


def test_a_governor_that_failed_in_the_parent_works_in_the_child() -> None:
    out = run(
        """
        import logging
        logging.disable()
        executor = hybridrt.AdaptiveThreadPoolExecutor()
        executor.submit(len, "ab").result(DEADLINE)
        shared.governor._fail(OSError("in the parent"))
        assert shared.permits.lifted

        def body():
            assert not shared.permits.lifted
            assert executor.statistics().governor_error is None
            # Fifty that wait for one another get through only with a governor that looks at them.
            barrier = threading.Barrier(50)
            futures = [executor.submit(barrier.wait, DEADLINE) for _ in range(50)]
            assert sorted(future.result(DEADLINE) for future in futures) == list(range(50))

        print(in_child(body))
        executor.shutdown()
        """
    )
    assert out == "0\n"


def test_a_worker_that_forks_leaves_the_child_without_its_own_call() -> None:
    out = run(
        """
        executor = hybridrt.AdaptiveThreadPoolExecutor()

        def forks():
            def body():
                assert executor.statistics().running == ()
                assert executor.submit(len, "ab").result(DEADLINE) == 2

            return in_child(body)

        print(executor.submit(forks).result(DEADLINE))
        print(executor.submit(len, "abc").result(DEADLINE))
        executor.shutdown()
        """
    )
    assert out == "0\n3\n"


def test_a_call_in_the_child_of_its_worker_holds_nothing() -> None:
    out = run(
        """
        executor = hybridrt.AdaptiveThreadPoolExecutor()

        def body():
            with hybridrt.blocking():
                assert shared.permits.held == [0, 0, 0, 0], shared.permits.held
            assert executor.submit(sum, range(10)).result(DEADLINE) == 45

        def forks():
            return in_child(body)

        executor.submit(int).result(DEADLINE)
        executor._pool.profiles.of(forks).kind = hybridrt.Kind.SHORT
        print(executor.submit(forks).result(DEADLINE))
        executor.shutdown()
        """
    )
    assert out == "0\n"


def test_a_child_that_a_call_of_a_lane_has_forked_can_use_the_lane() -> None:
    out = run(
        """
        @hybridrt.offload(lane="database")
        def query(fn):
            return fn()

        def body():
            hybridrt.check_cancelled()
            assert asyncio.run(query(lambda: 5)) == 5

        print(asyncio.run(query(lambda: in_child(body))))
        """
    )
    assert out == "0\n"


def test_a_forked_child_counts_batches_anew(stage: Stage) -> None:
    """Whoever holds the lock of the figures is not there."""
    stage.pool.batched["m:fn"] = BatchFigures()
    stage.pool.start_clean()
    assert stage.pool.batched == {}
