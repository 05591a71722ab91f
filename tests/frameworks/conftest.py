"""The executor under the frameworks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hybridrt import AdaptiveThreadPoolExecutor

from .support import PREFIX, Sight


@pytest.fixture
def sight() -> Sight:
    """What the functions of this test saw."""
    return Sight()


@pytest.fixture
async def executor() -> AsyncIterator[AdaptiveThreadPoolExecutor]:
    """Our executor, the default of the running loop and otherwise unknown to the framework."""
    executor = AdaptiveThreadPoolExecutor(thread_name_prefix=PREFIX)
    asyncio.get_running_loop().set_default_executor(executor)
    yield executor
    executor.shutdown()
