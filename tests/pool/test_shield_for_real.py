"""The shield on the interpreter's own switch interval: real calls, the environment, a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import hybridrt
from hybridrt.control.interval import LOWEST
from hybridrt.governor.shield import SystemSwitch

from .conftest import Make

ROOT = str(Path(hybridrt.__file__).resolve().parents[1])


def test_a_value_comes_back_as_it_was_whatever_the_rounding(untouched: None) -> None:
    switch = SystemSwitch()
    for micros in (*range(1, 1000), 4_999, 5_000, 5_001, 123_457):
        sys.setswitchinterval((micros + 0.5) / 1e6)
        found = switch.get()
        switch.set(0.0001)
        switch.set(found)
        assert switch.get() == found


@pytest.fixture
def untouched() -> Iterator[None]:
    interval = sys.getswitchinterval()
    yield
    SystemSwitch().set(interval)


def test_a_call_runs_at_a_short_interval_and_leaves_no_trace(make: Make) -> None:
    before = sys.getswitchinterval()
    executor = make()
    assert executor.submit(sys.getswitchinterval).result() == pytest.approx(LOWEST)
    statistics = executor.statistics().shield
    assert statistics is not None
    assert (statistics.user, statistics.changes > 0) == (before, True)
    executor.shutdown()
    assert sys.getswitchinterval() == before


def test_a_call_that_saves_and_restores_the_interval_leaves_no_trace(untouched: None, make: Make) -> None:
    before = sys.getswitchinterval()
    executor = make()

    def saves_and_restores() -> bool:
        saved = sys.getswitchinterval()
        sys.setswitchinterval(0.001)
        sys.setswitchinterval(saved)  # CPython cuts this: 100 us become 99
        return saved < before

    assert executor.submit(saves_and_restores).result()
    executor.shutdown()
    assert sys.getswitchinterval() == before


def run(script: str, **environment: str) -> str:
    """Run a script in a fresh interpreter, which must end well; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", dedent(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)]), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("value", "governed"), [("0", False), ("1", True)])
def test_the_environment_switches_it_off(value: str, governed: bool) -> None:
    out = run(
        """
        import sys, hybridrt
        before = sys.getswitchinterval()
        executor = hybridrt.AdaptiveThreadPoolExecutor()
        print(executor.submit(sys.getswitchinterval).result() < before)
        print(executor.statistics().shield is not None)
        executor.shutdown()
        """,
        HYBRIDRT_SHIELD=value,
    )
    assert out == f"{governed}\n{governed}\n"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_a_child_forked_beside_a_computing_call_has_the_users_own() -> None:
    out = run(
        """
        import os, sys, threading, warnings, hybridrt
        warnings.simplefilter("ignore", DeprecationWarning)
        before = sys.getswitchinterval()
        executor = hybridrt.AdaptiveThreadPoolExecutor()
        started, stop = threading.Event(), threading.Event()

        def spins():
            started.set()
            while not stop.is_set():
                pass

        running = executor.submit(spins)
        started.wait(20)
        assert sys.getswitchinterval() < before
        child = os.fork()
        if child == 0:
            os._exit(int(sys.getswitchinterval() != before))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stop.set()
        running.result(20)
        executor.shutdown()
        """
    )
    assert out == "0\n"
