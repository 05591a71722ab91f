"""Starting isolates: what they are given, and what becomes of a call for which none can be started."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from hybridrt import NotPortableError, Runtime, offload
from hybridrt.errors import IsolateStartError
from hybridrt.isolates.isolate import Isolate
from hybridrt.isolates.isolate_pool import IsolatePool, processes
from hybridrt.isolates.process import WorkerProcess
from hybridrt.isolates.reference import refer
from hybridrt.isolates.remote_invocation import RemoteInvocation
from hybridrt.values import Isolation
from tests.loop.support import DEADLINE

from . import far
from .support import run_isolated

TOO_MANY_FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Text(str):
    """Text whose `repr` is none, as numpy's."""

    def __repr__(self) -> str:
        return f"Text({super().__repr__()})"


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
async def test_of_the_search_path_an_isolate_is_given_what_is_text(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, text = list(sys.path), Text(tmp_path / "text")
    monkeypatch.setattr(sys, "path", [tmp_path, text, *before, None])
    assert await run_isolated(far.search_path, isolation=isolation) == [str(text), *before]


@pytest.mark.slow
@pytest.mark.usefixtures("runtime", "one_at_a_time")
async def test_a_module_that_is_found_since_the_search_path_has_changed_is_found_in_isolates(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_isolated(far.add, 1, isolation=isolation)
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / f"plugin_of_{isolation}.py"
    source.write_text("def work():\n    return 1\n")
    module = importlib.import_module(source.stem)
    assert await run_isolated(module.work, isolation=isolation) == 1
    before = processes.isolates()
    with pytest.raises(NotPortableError):
        await run_isolated(far.echo, far.Brittle(), isolation=isolation)
    assert processes.isolates() == before  # it has the new path


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
async def test_an_isolate_recurses_as_deep_as_its_parent(isolation: Isolation) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 500)
    try:
        assert await run_isolated(far.recursion_limit, isolation=isolation) == before + 500
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
async def test_an_isolate_reads_and_writes_integers_as_long_as_its_parent(isolation: Isolation) -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(5_000)
    try:
        assert await run_isolated(sys.get_int_max_str_digits, isolation=isolation) == 5_000
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
@pytest.mark.blocks_the_loop
async def test_after_a_reload_isolates_run_the_new_code(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / f"reloaded_{isolation}.py"
    source.write_text("def work():\n    return 1\n")
    module = importlib.import_module(source.stem)
    assert await run_isolated(module.work, isolation=isolation) == 1
    source.write_text("def work():\n    return 100\n")
    assert await run_isolated(importlib.reload(module).work, isolation=isolation) == 100


@pytest.mark.parametrize(
    ("problem", "number"),
    [(TOO_MANY_FILES, errno.EMFILE), (RuntimeError("can't start new thread"), errno.EAGAIN)],
    ids=["no file", "no thread"],
)
def test_a_call_for_which_no_isolate_can_be_started_fails_and_has_not_begun(
    problem: Exception, number: int
) -> None:
    class Unstartable(Isolate):
        def __init__(self) -> None:
            raise problem

    lending = IsolatePool(Unstartable, "processes", most=2)
    with pytest.raises(IsolateStartError, match=r"none of the processes .*where='thread'") as caught:
        RemoteInvocation(refer(far.add), lending)(1)
    assert caught.value.errno == number
    assert caught.value.__cause__ is problem
    assert lending.isolates() == ()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Let no process start; note what was to be started."""
    commands = list[Any]()

    def fail(command: Any, **_: Any) -> None:
        commands.append(command)
        raise TOO_MANY_FILES

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", fail)
        yield commands


async def test_where_isolate_says_what_is_lacking(runtime: Runtime, started: list[Any]) -> None:
    add = offload(pure=True, where="isolate", isolation="process")(far.add)
    with pytest.raises(OSError, match=r"none of the processes .*Too many open files") as caught:
        await add(1)
    assert caught.value.errno == errno.EMFILE
    assert len(started) == 1
    assert processes.isolates() == ()


@pytest.mark.parametrize(
    ("name", "value", "got"),
    [
        ("frozen", True, "got '.+' of a frozen program"),
        ("executable", "", "got ''"),
        ("executable", None, "got None"),
    ],
)
async def test_a_program_without_an_interpreter_to_start_is_not_started_once_more(
    runtime: Runtime,
    started: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: object,
    got: str,
) -> None:
    monkeypatch.setattr(sys, name, value, raising=False)
    with pytest.raises(NotPortableError, match=rf"expected it in sys\.executable, {got}; use where='thread'"):
        await run_isolated(far.add, 1, isolation="process")
    assert not started


def test_an_isolate_that_could_not_be_started_keeps_no_end_of_its_wire(started: list[Any]) -> None:
    with pytest.raises(OSError, match="Too many"):
        WorkerProcess()  # a socket left open would be an error, as all warnings are


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
def test_a_program_whose_files_are_all_in_use_before_its_first_isolate_goes_on_in_threads() -> None:
    program = """
        import asyncio, os, resource
        import hybridrt

        @hybridrt.offload(pure=True)
        def work(number):
            return sum(range(number))

        @hybridrt.offload(pure=True)
        def numbers(count):
            for number in range(count):
                yield sum(range(100_000))

        async def main():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            try:
                while True:
                    os.open(os.devnull, os.O_RDONLY)
            except OSError:
                print(len(await asyncio.gather(*(work(300_000) for _ in range(30)))))
                for _ in range(2):
                    print(len([number async for number in numbers(20)]))
                try:
                    await work.options(where="isolate")(1)
                except OSError as error:
                    print(type(error).__name__)

        hybridrt.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (done.stdout, done.stderr) == ("30\n20\n20\nIsolateStartError\n", "")
