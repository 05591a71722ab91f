"""Ground rules of the suite: two event loops, no traces left behind, races run again and again.

Every asynchronous test runs once on asyncio and once on uvloop. `tests.traces` fails a test that
leaves a thread or a changed switch interval behind; `tests.race` repeats the tests marked `race`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping

import pytest

pytest_plugins = ("tests.race", "tests.traces")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
if sys.platform != "win32":
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Name the event loops that every asynchronous test runs on."""
    return LOOPS
