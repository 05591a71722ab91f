"""The clock of the placement tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hybridrt import Runtime
from hybridrt.testing import ManualClock

from .support import stop_time


@pytest.fixture
async def clock() -> AsyncIterator[ManualClock]:
    async with Runtime(govern_anyio=False):
        yield stop_time()
