"""Fails an asynchronous test in which hybridrt blocks the event loop: blockbuster, as in suites of users.

Only calls below code of hybridrt are looked at: what a test does on its own loop is its own affair.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster

_blockbuster = BlockBuster("hybridrt")
for _name in ("threading.Lock.acquire", "threading.Lock.acquire_lock"):
    # Who calls these on a loop has asked for a wait.
    _blockbuster.functions[_name].can_block_in("hybridrt/executor/executor.py", "shutdown")
    _blockbuster.functions[_name].can_block_in("hybridrt/executor/future.py", {"result", "exception"})


@pytest.fixture(autouse=True)
def nothing_blocks_the_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Raise `BlockingError` where hybridrt blocks the loop of an asynchronous test."""
    asynchronous = inspect.iscoroutinefunction(getattr(request, "function", None))
    if not asynchronous or request.node.get_closest_marker("blocks_the_loop"):
        yield
        return
    _blockbuster.activate()
    try:
        yield
    finally:
        _blockbuster.deactivate()
