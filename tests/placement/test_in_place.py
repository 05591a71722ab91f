"""HYBRIDRT_WHERE: a whole program in threads or on the loop, for a debugger and for tests."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

import hybridrt
from hybridrt import Runtime, offload, options
from hybridrt.placements import Placement, PlacementReason
from tests.isolates import far

WAYS: list[dict[str, Any]] = [
    {},
    {"pure": True},
    {"where": "inline"},
    {"where": "thread", "limit": 1, "lane": "in place", "timeout": 30.0, "abandon_on_cancel": True},
    {"pure": True, "where": "isolate"},
    {"pure": True, "where": "isolate", "isolation": "process", "queue_timeout": 30.0},
]
ways = pytest.mark.parametrize("way", WAYS, ids=str)


@pytest.fixture
async def runtime() -> Any:
    async with Runtime() as runtime:
        yield runtime


def everything(monkeypatch: pytest.MonkeyPatch, where: Placement) -> None:
    """Have all functions decorated from now on run there."""
    for module in ("explanation", "options", "offload", "trial"):
        monkeypatch.setattr(sys.modules[f"hybridrt.{module}"], "IN_PLACE", where)


def where_it_runs() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


HERE = os.getpid()


@ways
@pytest.mark.usefixtures("runtime")
async def test_inline_runs_every_call_in_the_loops_thread(
    monkeypatch: pytest.MonkeyPatch, way: dict[str, Any]
) -> None:
    everything(monkeypatch, "inline")
    fn = offload(where_it_runs, **way)
    assert await fn() == where_it_runs()
    assert await fn.options(timeout=None, limit=None, lane=None)() == where_it_runs()
    told = hybridrt.explain(fn)
    assert (told.where, told.reason) == ("inline", PlacementReason.FORCED)
    assert not hybridrt.explain(where_it_runs).pure


@ways
@pytest.mark.usefixtures("runtime")
async def test_thread_runs_every_call_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, way: dict[str, Any]
) -> None:
    everything(monkeypatch, "thread")
    fn = offload(where_it_runs, **way)
    process, thread = await fn()
    assert process == HERE
    assert thread != threading.get_ident()
    told = hybridrt.explain(fn)
    assert (told.where, told.reason) == ("thread", PlacementReason.FORCED)
    assert told.advice == "`where`, or HYBRIDRT_WHERE in the environment, says so."


async def test_inline_runs_the_runtimes_own_calls_there_too(
    monkeypatch: pytest.MonkeyPatch, runtime: Runtime
) -> None:
    everything(monkeypatch, "inline")
    assert await runtime.offload(where_it_runs) == where_it_runs()
    assert await runtime.offload(int, "11", base=2) == 3
    assert await runtime.map(lambda _: where_it_runs(), range(2)) == [where_it_runs()] * 2


@pytest.mark.usefixtures("runtime")
async def test_inline_calls_that_may_not_overlap_may_call_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything(monkeypatch, "inline")
    inner = offload(where_it_runs, lane="one")
    assert await asyncio.gather(inner(), inner()) == [where_it_runs()] * 2


def test_a_trial_says_that_it_has_no_places_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    everything(monkeypatch, "thread")
    with pytest.raises(RuntimeError, match=r"HYBRIDRT_WHERE='thread' in the environment .*; unset it"):
        hybridrt.trial(where_it_runs)


PROGRAM = """
import asyncio, os, threading
from tests.isolates import far
from hybridrt import offload, run
pid = offload(far.pid, pure=True, where="isolate", isolation="process")
thread = offload(far.current_thread)
async def main():
    print(await pid() == os.getpid(), await thread() == threading.get_ident())
run(main())
"""


def run_program(where: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HYBRIDRT_WHERE": where},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "printed"),
    [("inline", "True True\n"), ("thread", "True False\n"), ("", "False False\n")],
)
def test_the_environment_decides_for_a_whole_program(where: str, printed: str) -> None:
    done = run_program(where)
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr


@pytest.mark.parametrize("where", ["isolate", "threads"])
def test_another_value_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setenv("HYBRIDRT_WHERE", where)
    with pytest.raises(ValueError, match=f"HYBRIDRT_WHERE must be one of 'inline', 'thread', got '{where}'"):
        options.in_place()


# ---------------------------------------------------------------------- debuggers


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("stop", [far.stop, far.stop_with_pdb])
async def test_a_debugger_in_the_process_of_an_isolate_says_what_to_do(stop: Any) -> None:
    fn = offload(stop, pure=True, where="isolate", isolation="process")
    with pytest.raises(RuntimeError, match=r"in an isolate; .*HYBRIDRT_WHERE=thread .*where='thread'"):
        await fn()


@pytest.mark.slow
@pytest.mark.parametrize("debugger", ["0", "tests.isolates.far.pid"])
async def test_a_debugger_of_the_programs_own_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, debugger: str
) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", debugger)
    async with Runtime():
        assert await offload(far.stop, pure=True, where="isolate", isolation="process")() == "went on"
