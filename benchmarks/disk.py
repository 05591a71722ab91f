"""Does a pool find the right number of threads for a disk?

The loads of the document that proposed to follow the bytes (`policy="throughput"`): jobs that read and write
2 MB, with and without waiting for the disk, one batch after the other, and in the place of its RocksDB the
embedded stores SQLite and LMDB. Each on fixed pools of seven sizes, on a watermark pool, and under
`throughput` and `demand`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Spread, Target, ratios, spread, table
from benchmarks.harness import Candidate, Options, Report, Sample, describe, measure

__all__ = ["LOADS", "Load", "best_fixed", "candidates", "draw", "run"]

SIZES = (1, 2, 4, 8, 16, 32, 64)
RIVALS = ("watermark", "throughput", "demand")
HIGHEST = 64
NEAR = 0.03
"""A fixed size is the best if no other takes less than this share less time and it is the smallest of those:
the rule of the document."""
LIMIT = 0.95
"""Of the best fixed size's speed that `demand` should reach on each load."""
FEW = 0.05
"""What *a few per cent* is here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Batches of jobs.

    Attributes:
        name: Of the load.
        batches: Jobs and their number, one after the other.
        needs: A module without which it is left out.
    """

    name: str
    batches: tuple[tuple[str, int], ...]
    needs: tuple[str, ...] = ()


LOADS = (
    Load(name="sync", batches=(("sync", 2500),)),
    Load(name="nosync", batches=(("nosync", 3000),)),
    Load(name="two phases", batches=(("nosync", 4000), ("sync", 3000))),
    Load(name="SQLite", batches=(("sqlite", 5000),)),
    Load(name="LMDB", batches=(("lmdb", 7000),), needs=("lmdb",)),
)
QUICK = 100
"""By how many times a quick run has fewer jobs."""

_NOTE = """\
Seconds for all jobs of a load: the median over {count} fresh processes, then lowest and highest. *Speed* is
the best fixed size's time over this one's, repetition by repetition. *Average* and *peak* are live threads,
looked at ten times a second. The best fixed size is the smallest that takes at most 3 % longer than the
fastest one; it is known only after trying all seven. Sizes may be at most {highest}."""


def candidates(*, quick: bool) -> list[Candidate]:
    """Return every load on every pool."""
    ways = [(f"fixed {size}", "fixed", size) for size in (SIZES[:3] if quick else SIZES)]
    ways += [(rival, rival, HIGHEST) for rival in RIVALS]
    return [
        Candidate(
            name=f"{load.name}: {way}",
            job="disk",
            arguments={
                "load": load.name,
                "pool": pool,
                "size": size,
                "batches": [(job, count // (QUICK if quick else 1)) for job, count in load.batches],
            },
            needs=load.needs if pool == "fixed" else ("hybridrt", *load.needs),
        )
        for load in LOADS
        for way, pool, size in ways
    ]


def run(options: Options) -> Report:
    """Measure, compare and report."""
    repetitions = 1 if options.quick else 3
    head, samples = measure("disk", __doc__, options, candidates(quick=options.quick), repetitions)
    return report(head, _by_load(samples))


def _by_load(samples: Mapping[str, Sequence[Sample]]) -> dict[str, dict[str, Sequence[Sample]]]:
    found: dict[str, dict[str, Sequence[Sample]]] = {}
    for name, taken in samples.items():
        load, _, way = name.partition(": ")
        found.setdefault(load, {})[way] = taken
    return found


def report(head: Mapping[str, Any], loads: Mapping[str, Mapping[str, Sequence[Sample]]]) -> Report:
    """Put a report together from the samples of each load and way."""
    parts = ["# Disk: does a pool find the right number of threads?"]
    parts.append(_NOTE.format(count=head["repetitions"], highest=HIGHEST))
    targets: list[Target] = []
    for load, ways in loads.items():
        best = best_fixed(ways)
        parts += [f"## {load}", _table(ways, best), *_words(ways, best)]
        if best is not None and "demand" in ways:
            speed = _speed(ways, "demand", best)
            targets.append(Target(claim=f"demand, {load}", figure=speed, limit=LIMIT, at_least=True))
    if targets:
        rows = [target.row() for target in targets]
        parts += ["## Promises", table(("share of the best fixed speed", "limit", "measured", ""), rows)]
    data = {**head, "samples": loads, "targets": [target.to_dict() for target in targets]}
    return Report(name="disk", text="\n\n".join([*parts, describe(head)]), data=data)


def best_fixed(ways: Mapping[str, Sequence[Sample]]) -> str | None:
    """Return the smallest fixed size that takes at most 3 % longer than the fastest; None without any."""
    times = {
        way: median(_figures(taken, "seconds")) for way, taken in ways.items() if way.startswith("fixed")
    }
    if not times:
        return None
    near = [way for way, seconds in times.items() if seconds <= (1.0 + NEAR) * min(times.values())]
    return min(near, key=lambda way: int(way.split()[1]))


def _figures(taken: Sequence[Sample], name: str) -> list[float]:
    return [float(sample[name]) for sample in taken]


def _speed(ways: Mapping[str, Sequence[Sample]], way: str, best: str) -> Spread:
    return ratios(_figures(ways[best], "seconds"), _figures(ways[way], "seconds"))


def _table(ways: Mapping[str, Sequence[Sample]], best: str | None) -> str:
    rows = [
        (
            f"{way} (best)" if way == best else way,
            spread(_figures(taken, "seconds")).text(2),
            "" if best is None else _speed(ways, way, best).text(2),
            spread(_figures(taken, "average")).text(1),
            f"{median(_figures(taken, 'peak')):.0f}",
        )
        for way, taken in ways.items()
    ]
    return table(("pool", "seconds", "speed", "average", "peak"), rows)


def _words(ways: Mapping[str, Sequence[Sample]], best: str | None) -> Iterator[str]:
    """Yield what the run says of the document's claims."""
    if best is None or "throughput" not in ways:
        return
    size = int(best.split()[1])
    speed = _speed(ways, "throughput", best).median
    average = median(_figures(ways["throughput"], "average"))
    near = speed >= 1.0 - FEW
    lost = 100.0 * (1.0 / speed - 1.0)
    took = f"{abs(lost):.0f} % {'more' if lost >= 0.0 else 'less'} time than {best}"
    yield (
        f"The document's claim that its pool is within a few per cent of the best fixed size "
        f"{'holds' if near else 'does not hold'} here: `throughput` took {took}, "
        f"with {average:.1f} threads on average where that has {size}. {_beside_watermark(ways, average)}"
    )
    if any("decisions" in sample for sample in ways["throughput"]):
        seen = {reason for sample in ways["throughput"] for _, _, reason in sample.get("decisions", ())}
        told = [name for name in ("scaling", "settled", "exploring") if name in seen]
        yield f"Its log shows these of its three states: {', '.join(told) or 'none'}."


def _beside_watermark(ways: Mapping[str, Sequence[Sample]], average: float) -> str:
    if "watermark" not in ways:
        return ""
    rival = median(_figures(ways["watermark"], "average"))
    faster = ratios(_figures(ways["watermark"], "seconds"), _figures(ways["throughput"], "seconds")).median
    fewer = "fewer" if average < rival else "not fewer"
    return (
        f"That it has fewer threads than a watermark pool {'holds' if average < rival else 'does not hold'}: "
        f"{average:.1f} are {fewer} than {rival:.1f}; it did {faster:.2f} times as much in the same time."
    )


# ---------------------------------------------------------------------- the picture

_COLORS = {"watermark": "#d9a441", "throughput": "#c8553d", "demand": "#3b6fb6"}
_STEP = 5
"""Looks that one point of a line of bytes is the mean of."""


def draw(data: Mapping[str, Any], picture: Path) -> Path:
    """Draw size and bytes over time, one row for each load, of the first repetition.

    Raises:
        ModuleNotFoundError: matplotlib is missing; it is in the `bench` group.
    """
    loads = data["samples"]
    # By name, so that types can be checked without matplotlib.
    figure = import_module("matplotlib.figure").Figure(figsize=(11, 2.4 * len(loads)), layout="constrained")
    for (left, right), (load, ways) in zip(
        figure.subplots(len(loads), 2, squeeze=False), loads.items(), strict=True
    ):
        for way, color in _COLORS.items():
            if way in ways:
                _lines(left, right, way, ways[way][0]["curve"], color)
        if (best := best_fixed(ways)) is not None:
            left.axhline(int(best.split()[1]), color="#777777", linestyle=":", label="best fixed size")
            _lines(None, right, "best fixed size", ways[best][0]["curve"], "#777777")
        left.set_title(f"{load}: threads", loc="left", fontsize=9)
        right.set_title(f"{load}: MB read and written per second", loc="left", fontsize=9)
        left.set_ylim(bottom=0)
        right.set_ylim(bottom=0)
        left.legend(frameon=False, fontsize="small")
    left.set_xlabel("seconds")
    right.set_xlabel("seconds")
    figure.savefig(picture, metadata={"Date": None})
    return picture


def _lines(left: Any, right: Any, way: str, curve: Sequence[Sequence[float]], color: str) -> None:
    if left is not None:
        left.step(
            [at for at, _, _ in curve], [size for _, size, _ in curve], where="post", color=color, label=way
        )
    kept = curve[::_STEP]
    spans = [(now, later) for now, later in pairwise(kept) if later[0] > now[0]]
    rates = [(later[2] - now[2]) / (later[0] - now[0]) / 1e6 for now, later in spans]
    right.plot([later[0] for _, later in spans], rates, color=color, linewidth=0.9, label=way)
