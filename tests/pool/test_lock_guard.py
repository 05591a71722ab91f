"""A thread sees in its own frames that it would wait for itself, without the source of the package."""

from __future__ import annotations

import ast
import compileall
import dis
import importlib
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

import pytest

import hybridrt
from hybridrt.loop.router import Router
from hybridrt.pool import lock as lock_module
from hybridrt.pool.lock import SelfWaitError, _sections

_HOME = Path(hybridrt.__file__).parent
_NOT_INLINE = {"hybridrt.loop.bounded_map", "hybridrt.__main__"}
"""An `asyncio.Lock` is in the first; the second runs the program."""


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(hybridrt.__path__, "hybridrt."):
        if found.name not in _NOT_INLINE:
            yield importlib.import_module(found.name)


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of all that has a name."""
    if not code.co_name.startswith("<"):
        yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _functions(constant)


def _holds_lock(block: ast.With) -> bool:
    """Return True unless it is the one lock that is held while another one is taken."""
    names = [ast.unparse(item.context_expr).rstrip(")") for item in block.items]
    return any(name.endswith("lock") and name != "_private_lock" for name in names)


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield the lines of what is within the blocks that hold a lock."""
    for block in ast.walk(ast.parse(text)):
        if isinstance(block, ast.With) and _holds_lock(block):
            yield block.body[0].lineno, block.body[-1].end_lineno or 0


def _calls(code: CodeType, *, guarded: bool = False) -> set[int]:
    """Return the lines of the calls that a function makes, or of those within a section."""
    return {
        step.positions.lineno
        for step in dis.get_instructions(code)
        if step.opname.startswith("CALL") and step.positions is not None and step.positions.lineno is not None
        if not guarded or any(start <= step.offset < end for start, end in _sections(code))
    }


def test_every_block_that_holds_a_lock_is_known() -> None:
    seen = 0
    for module in _modules():
        assert module.__file__ is not None
        text = Path(module.__file__).read_text("utf-8")
        functions = list(_functions(compile(text, module.__file__, "exec")))
        for first, last in _blocks(text):
            for function in functions:
                calls = {line for line in _calls(function) if first <= line <= last}
                seen += bool(calls)
                assert calls <= _calls(function, guarded=True), function
    assert seen > 30


def test_a_section_that_is_waited_for_from_within_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the garbage collector runs a finalizer there."""
    monkeypatch.setattr(lock_module, "LOOKS", 2)
    router = Router(len, forced=None, on_loop=True)
    monkeypatch.setattr(router, "_admit", router.statistics)
    router.overruns.left = 1
    with pytest.raises(SelfWaitError, match="would wait for itself"):
        router.choose(router.size_class(None))
    assert not router._lock.locked()


def test_without_a_gil_it_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "LOOKS", 2)
    monkeypatch.setattr(lock_module, "gil_enabled", lambda: False)
    router = Router(len, forced=None, on_loop=True)
    monkeypatch.setattr(router, "_admit", router.statistics)
    router.overruns.left = 1
    with pytest.raises(SelfWaitError, match="would wait for itself"):
        router.choose(router.size_class(None))


_SELF_WAIT = """
import hybridrt
from hybridrt.pool.lock import SelfWaitError
from hybridrt.pool import scheduler

assert hybridrt.__file__.endswith(".pyc"), hybridrt.__file__
executor = hybridrt.AdaptiveThreadPoolExecutor(1)
hold = scheduler.hold_locked

def interrupted(pool, worker, call):
    scheduler.hold_locked = hold
    try:
        executor.submit(abs, -2)
    except SelfWaitError as error:
        print("told")
    return hold(pool, worker, call)

scheduler.hold_locked = interrupted
print(executor.submit(abs, -1).result())
"""


@pytest.mark.slow
def test_it_is_told_where_there_are_no_source_files(tmp_path: Path) -> None:
    home = tmp_path / "hybridrt"
    shutil.copytree(_HOME, home, ignore=shutil.ignore_patterns("__pycache__"))
    assert compileall.compile_dir(home, quiet=2, legacy=True)
    for source in home.rglob("*.py"):
        source.unlink()
    done = subprocess.run(
        [sys.executable, "-c", _SELF_WAIT], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.stderr) == ("told\n1\n", "")
