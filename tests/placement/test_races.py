"""Placement under racing threads: choices stay within their bounds, and no call is lost."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hybridrt import offload
from hybridrt.loop.router import Router

pytestmark = pytest.mark.race


def count(text: str) -> int:
    return len(text)


def test_loops_that_share_a_function_all_get_their_results() -> None:
    shared = offload(pure=True)(count)
    results: list[list[int]] = []

    async def calls() -> None:
        results.append(await asyncio.gather(*(shared("x" * (number % 5)) for number in range(20))))

    threads = [threading.Thread(target=asyncio.run, args=(calls(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[number % 5 for number in range(20)]] * 3


def test_overruns_of_several_loops_are_all_counted() -> None:
    router = Router(count, forced=None, on_loop=True)
    threads = [
        threading.Thread(target=lambda: [router._took_long(1_000_000, 1_000_000, 0) for _ in range(20)])
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert router.overruns.count == 60


def test_calls_that_go_to_a_worker_after_an_overrun_are_counted_down_once_each() -> None:
    router = Router(count, forced=None, on_loop=True)
    router.overruns.left = 100
    size_class = router.size_class((3, 0, 0))
    threads = [
        threading.Thread(target=lambda: [router.choose(size_class) for _ in range(20)]) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert router.overruns.left == 40
