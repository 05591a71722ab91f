"""How hybridrt gets into anyio: late, half-way through its import, and not into one it does not know."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import anyio._backends
import anyio.to_thread
import pytest

from hybridrt import Runtime
from hybridrt.integrations import anyio as ours

run_sync = anyio.to_thread.run_sync


def in_a_process(program: str) -> None:
    """Run a program that anyio must not have been imported in before."""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)


@pytest.mark.slow
def test_a_program_without_anyio_does_not_import_it() -> None:
    in_a_process(
        "import asyncio, sys, hybridrt\n"
        "async def main():\n"
        "    runtime = hybridrt.Runtime.current()\n"
        "    await runtime.offload(int)\n"
        "    assert runtime.statistics().anyio is None\n"
        "hybridrt.run(main())\n"
        "assert 'anyio' not in sys.modules\n"
    )


@pytest.mark.slow
def test_the_first_call_of_a_program_that_imports_anyio_late_is_ours() -> None:
    in_a_process(
        "import asyncio, inspect, threading, hybridrt\n"
        "async def main():\n"
        "    runtime = hybridrt.Runtime.current()\n"
        "    import anyio, anyio.to_thread\n"
        "    assert runtime.statistics().anyio is None\n"
        "    thread = await anyio.to_thread.run_sync(threading.current_thread)\n"
        "    assert thread.name.startswith('hybridrt'), thread\n"
        "    assert runtime.statistics().anyio.calls == 1\n"
        "    import anyio._backends._asyncio as backend\n"
        "    assert 'class AsyncIOBackend' in inspect.getsource(backend)\n"
        "hybridrt.run(main())\n"
    )


HALF_IMPORTED = """
import asyncio, importlib, sys, threading, hybridrt

class Pause:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "anyio.lowlevel":  # which the backend imports before it defines anything
            reached.set()
            assert go.wait(30)

async def main():
    backend = asyncio.ensure_future(asyncio.to_thread(importlib.import_module, "anyio._backends._asyncio"))
    await asyncio.to_thread(reached.wait, 30)
    assert "anyio._backends._asyncio" in sys.modules
    async with hybridrt.Runtime() as runtime:
        runtime._watch._heartbeat.stop()
        runtime._anyio.beat(0.0, 0.0)
        assert runtime.statistics().anyio is None
        go.set()
        await backend
        runtime._anyio.beat(1.0, 0.0)
        import anyio.to_thread
        thread = await anyio.to_thread.run_sync(threading.current_thread)
        assert thread.name.startswith("hybridrt"), thread
        assert runtime.statistics().anyio.stopped is None

reached, go = threading.Event(), threading.Event()
sys.meta_path.insert(0, Pause)
asyncio.run(main())
"""


@pytest.mark.slow
def test_a_backend_that_another_thread_is_just_importing_is_not_there_yet() -> None:
    in_a_process(HALF_IMPORTED)


def test_a_finder_that_finds_in_no_way_python_knows_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = ours._Finder()
    others = [each for each in sys.meta_path if not isinstance(each, ours._Finder)]
    monkeypatch.setattr(sys, "meta_path", [finder, object(), *others])
    spec = finder.find_spec(ours.BACKEND, anyio._backends.__path__)
    assert spec is not None
    assert spec.name == ours.BACKEND


TRIO = """
import asyncio, threading, anyio, anyio.to_thread, hybridrt

async def main():
    async def name():
        return (await anyio.to_thread.run_sync(threading.current_thread)).name
    assert (await name()).startswith("hybridrt")
    assert not (await asyncio.to_thread(anyio.run, name, backend="trio")).startswith("hybridrt")

hybridrt.run(main())
"""


@pytest.mark.slow
def test_a_trio_loop_in_another_thread_keeps_its_threads() -> None:
    """In a process of its own: trio keeps its threads for some seconds."""
    pytest.importorskip("trio")
    in_a_process(TRIO)


@pytest.fixture
def unhooked(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that hooks an anyio that lacks a name."""

    def hook(lacking: str) -> None:
        backend = sys.modules[ours.BACKEND]
        module = types.ModuleType(ours.BACKEND)
        module.__dict__.update({name: value for name, value in vars(backend).items() if name != lacking})
        monkeypatch.setattr(ours, "_hooked", None)
        monkeypatch.setattr(ours, "_refused", None)
        ours._hook(module)

    return hook


@pytest.mark.parametrize("lacking", ["AsyncIOBackend", "CancelScope", "threadlocals", "claim_worker_thread"])
async def test_an_anyio_that_lacks_a_name_keeps_its_threads_and_the_statistics_name_it(
    unhooked: Callable[[str], None], lacking: str, caplog: pytest.LogCaptureFixture
) -> None:
    await run_sync(int)
    async with Runtime() as runtime:
        unhooked(lacking)
        seen = runtime.statistics().anyio
        assert seen is not None
        assert (stopped := seen.stopped) is not None
        assert lacking in stopped
        assert lacking in caplog.text
        assert f"not ours: {stopped[:20]}" in str(runtime.statistics())


async def test_the_class_is_hooked_once(unhooked: Callable[[str], None]) -> None:
    await run_sync(int)
    async with Runtime():
        await run_sync(int)
        backend: Any = sys.modules[ours.BACKEND]
        method = backend.AsyncIOBackend.__dict__[ours.RUN_SYNC]
        unhooked("")
        assert backend.AsyncIOBackend.__dict__[ours.RUN_SYNC] is method
