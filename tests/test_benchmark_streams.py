"""The benchmark of streams: its arithmetic, and its ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from benchmarks import streams
from benchmarks.children.streams import WAYS, make_work, measure
from benchmarks.harness import Sample
from hybridrt import AdaptiveThreadPoolExecutor

QUEUE, FAST = streams.QUEUE_WAYS[0], streams.QUEUE_WAYS[3]


def items(pipe: float) -> Sample:
    return {"us": {"pipe": pipe, QUEUE: 90.0, FAST: 50.0, "aiostream": 130.0}}


@pytest.mark.parametrize(
    ("ours", "held"), [(59.0, [True, True]), (62.0, [False, True]), (80.0, [False, False])]
)
def test_the_pipe_is_compared_with_the_best_queue(ours: float, held: list[bool]) -> None:
    found = streams.targets({"items: python on asyncio": [items(ours)]})
    assert streams.best_queue([items(ours)]) == FAST
    assert [target.held for target in found] == held


def test_batches_are_compared_with_one_call_each() -> None:
    sample = {
        "sentences_per_s": {"batch": [400.0], "each": [100.0]},
        "alone_ms": {"batch": [2.1], "each": [2.0]},
    }
    assert [target.held for target in streams.targets({"batches on asyncio": [sample]})] == [True, True]


def test_only_a_pipe_runs_on_our_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    ours: list[bool] = []

    async def way(work: Callable[[int], int], items: int) -> int:
        await asyncio.to_thread(work, 0)
        executor = asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined]  # not public
        ours.append(isinstance(executor, AdaptiveThreadPoolExecutor))
        return items

    ways = ["pipe", "pipe, unordered", "aiostream", "spdl"]
    for name in ways:
        monkeypatch.setitem(WAYS, name, way)
    measure(job="items", loop="asyncio", ways=ways, kind="python", rounds=1, items=1)
    assert ours == [True] * 4 + [False] * 4  # each way is warmed up before


def test_a_way_that_loses_items_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def losing(work: Callable[[int], int], items: int) -> int:
        return items - 1

    monkeypatch.setitem(WAYS, "spdl", losing)
    with pytest.raises(RuntimeError, match="spdl must return 3 items, got 2"):
        measure(job="items", loop="asyncio", ways=["spdl"], kind="python", rounds=1, items=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", streams.KINDS)
def test_every_way_does_all_items(kind: str) -> None:
    ways = ["pipe", "pipe, unordered", QUEUE, FAST]
    assert set(ways) <= set(WAYS)
    found = measure(job="items", loop="asyncio", ways=ways, kind=kind, rounds=10, items=200)
    assert list(found["us"]) == ways
    assert make_work(kind, 10)(7) == 7
