"""Fixtures of the asynchronous tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from .support import Timers


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    """Take the timers of offloaded calls away from the loop, for the test to fire."""
    loop, timers = asyncio.get_running_loop(), Timers()
    call_later = loop.call_later

    def note(delay: float, callback: Callable[..., object], *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        if not getattr(callback, "__name__", "").startswith("expire"):
            return call_later(delay, callback, *args, **kwargs)
        timers.armed.append((delay, callback, args))
        timers.handles.append(call_later(3600.0, callback, *args, **kwargs))
        return timers.handles[-1]

    monkeypatch.setattr(loop, "call_later", note)
    return timers
