"""Private names of CPython stand in one module, which says what a Python lacks."""

from __future__ import annotations

import ast
import asyncio
import sys
from threading import Thread
from types import SimpleNamespace

import pytest

from hybridrt import compat
from hybridrt.compat import (
    NEEDED,
    PrivateName,
    children_are_no_daemons,
    interpreter_flags,
    lacking,
    leave_behind,
)

from .test_layers import PACKAGE, module_of, sources

DOCUMENTED = {"sys._getframe", "sys._current_frames", "os._exit", "asyncio._get_running_loop"}
"""Names with an underscore that the standard library's documentation or `__all__` offers."""


def private_names(source: str) -> set[str]:
    """Return the private names of the standard library that a module's source uses, with their modules."""
    tree, modules, found = ast.parse(source), dict[str, str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.asname or each.name: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                name = f"{node.module}.{each.name}"
                modules[each.asname or each.name] = name
                if (each.name.startswith("_") or "._" in node.module) and _is_stdlib(name):
                    found.add(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{modules.get(node.value.id, '')}.{node.attr}"
            if node.attr.startswith("_") and not node.attr.startswith("__") and _is_stdlib(name):
                found.add(name)
    return found - DOCUMENTED


def _is_stdlib(name: str) -> bool:
    first = name.split(".")[0]
    return first in sys.stdlib_module_names and first != "__future__"


def test_this_python_has_all_that_is_needed() -> None:
    assert lacking() == []


def test_no_other_module_uses_a_private_name_of_the_standard_library() -> None:
    found = {module_of(path): private_names(path.read_text()) for path in sources(PACKAGE)}
    assert found.pop("hybridrt.compat")
    assert {module: names for module, names in found.items() if names} == {}


def test_a_private_name_is_found_in_every_spelling() -> None:
    for line in (
        "import threading\nthreading._register_atexit(f)",
        "import asyncio as a\na._unregister_task(t)",
        "from concurrent.futures import _base",
        "from concurrent.futures._base import LOGGER",
        "from threading import _shutdown",
        "from concurrent.futures import thread as t\nt._shutdown",
    ):
        assert private_names(line), line
    for line in ("import sys\nsys._getframe()", "from hybridrt.loop import _late", "import os\nos.__name__"):
        assert not private_names(line), line


def test_what_a_python_lacks_is_said_by_name() -> None:
    names = [PrivateName(SimpleNamespace(_kept=1), "threading", name) for name in ("_kept", "_gone")]
    assert lacking(names) == ["threading._gone"]
    with pytest.raises(ImportError, match=r"lacks threading\._gone: use an earlier Python"):
        compat._check(names)


def test_all_names_of_the_module_of_threads_that_others_read_are_checked() -> None:
    checked = {each.name for each in NEEDED if each.owner is compat.stdlib_threads}
    read = {
        node.attr
        for path in sources(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "stdlib_threads"
    }
    assert read
    assert read <= checked


def test_a_thread_of_a_thread_is_no_daemon() -> None:
    inherited: list[bool] = []

    def start() -> None:
        children_are_no_daemons(thread)
        inherited.append(Thread().daemon)

    thread = Thread(target=start, daemon=True)
    thread.start()
    thread.join(20)
    assert inherited == [False]


async def test_a_task_that_is_left_behind_is_no_task_of_its_loop() -> None:
    task = asyncio.ensure_future(asyncio.sleep(0))
    leave_behind(task)
    assert task not in asyncio.all_tasks()
    await task


def test_a_child_gets_the_options_of_this_interpreter() -> None:
    assert all(isinstance(flag, str) for flag in interpreter_flags())
