"""The clock of the placement tests, and a function that holds the GIL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hybridrt import Runtime
from hybridrt.testing import ManualClock

from .isolates import show_holding
from .support import MS, Work, stop_time


@pytest.fixture
async def clock() -> AsyncIterator[ManualClock]:
    async with Runtime(govern_anyio=False):
        yield stop_time()


@pytest.fixture
async def holding(clock: ManualClock) -> Work:
    """A function that computes for long and holds the GIL."""
    work = Work(clock, cpu=16 * MS)
    show_holding(work)
    return work
