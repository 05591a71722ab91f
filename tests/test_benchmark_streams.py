"""The benchmark of streams: its arithmetic, and what its child leaves behind."""

from __future__ import annotations

import pytest

from benchmarks import streams
from benchmarks.children.streams import WAYS, make_work, measure
from benchmarks.harness import ChildError, Sample

QUEUE, FAST = streams.QUEUE_WAYS[0], streams.QUEUE_WAYS[3]


def items(pipe: float) -> Sample:
    return {"us": {"pipe": [pipe] * 3, QUEUE: [90.0] * 3, FAST: [50.0] * 3, "aiostream": [130.0] * 3}}


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


def test_what_cancelling_leaves_is_an_error() -> None:
    clean = {"tasks": 0, "files": 0, "threads": 0, "generators": 0}
    streams._check_ends({"ends: pipe": [clean]})
    with pytest.raises(ChildError, match="ends: pipe must leave nothing behind"):
        streams._check_ends({"ends: pipe": [{**clean, "tasks": 1}]})


@pytest.mark.slow
@pytest.mark.parametrize("kind", streams.KINDS)
def test_every_way_does_all_items(kind: str) -> None:
    ways = ["pipe", "pipe, unordered", QUEUE, FAST]
    assert set(ways) <= set(WAYS)
    found = measure(job="items", loop="asyncio", ways=ways, kind=kind, rounds=10, items=200, turns=1)
    assert {way: len(took) for way, took in found["us"].items()} == dict.fromkeys(ways, 1)
    assert make_work(kind, 10)(7) == 7


@pytest.mark.slow
@pytest.mark.parametrize("what", streams.ENDS)
def test_cancelling_leaves_nothing_behind(what: str) -> None:
    left = measure(job="ends", loop="asyncio", what=what, points=20, seed=3)
    assert not any(left.values()), left
