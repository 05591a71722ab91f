"""Ground rules of the suite: two event loops, no traces left behind, races run again and again.

Every asynchronous test runs once on asyncio and once on uvloop. `tests.traces` fails a test that
leaves a thread or a changed switch interval behind; `tests.race` repeats the tests marked `race`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

pytest_plugins = ("tests.blocking", "tests.race", "tests.suspended", "tests.traces")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
if sys.platform != "win32":
    import uvloop

    def _make_uvloop() -> asyncio.AbstractEventLoop:
        loop = uvloop.new_event_loop()
        loop.set_exception_handler(_leave_on_timeout)
        return loop

    LOOPS["uvloop"] = _make_uvloop


def _leave_on_timeout(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Let pytest-timeout end a test that hangs on uvloop.

    It raises from a signal handler; uvloop reports all but `SystemExit` and `KeyboardInterrupt` here
    and goes on, and pytest takes the former for an ordinary failure.
    """
    error = context.get("exception")
    if isinstance(error, pytest.fail.Exception):
        raise SystemExit(str(error)) from error
    loop.default_exception_handler(context)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Name the event loops that every asynchronous test runs on."""
    return LOOPS


@pytest.fixture
def quiet_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The thread that ends with an error says nothing; it may end after the test has."""
    ended = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: ended.set())
    yield
    assert ended.wait(60)


@pytest.fixture
def without_gc() -> Iterator[None]:
    """What dies in here dies by its reference count: a cycle would keep it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
