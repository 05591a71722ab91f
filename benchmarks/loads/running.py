"""One load, measured: the sweep, the alternatives, the pairs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any

from benchmarks.harness import Candidate, Progress, Sample, facts, importable, spawn, version
from benchmarks.loads.figures import over_phases
from benchmarks.loads.plan import Load, Timing
from benchmarks.loads.sweep import Point, best_size, doubtful, next_sizes

__all__ = ["ALTERNATIVES", "default_size", "measure"]

ALTERNATIVES = {"betapool": "betapool", "anyio": "anyio", "paper": "hybridrt", "runtime": "hybridrt"}
"""Pools that size themselves or have one size, by the module they need.

`paper` is ours with that policy, `runtime` ours within a `Runtime`, whose shield knows the loop.
"""

_MORE_SIZES = 5
"""What a sweep goes on to, roughly: counted for the progress alone."""

_LIBRARIES = ("numpy", "onnxruntime", "pandas", "betapool")


def default_size() -> int:
    """Return the threads of asyncio's default executor."""
    return min(32, (os.cpu_count() or 1) + 4)


def measure(load: Load, timing: Timing, progress: Progress) -> Mapping[str, Any]:
    """Return all there is to know of a load; the best static size first, since the pairs need it."""
    bench = _Bench(load, timing, progress)
    machine = facts() | {"libraries": {name: version(name) for name in _LIBRARIES}}
    points = bench.sweep()
    best = best_size(points)
    others = [pool for pool, needs in ALTERNATIVES.items() if importable(needs)]
    rounds = [bench.round(best, others) for _ in range(timing.pairs)]
    progress.end()
    return {
        "load": load.name,
        "tasks": load.tasks,
        "seconds": timing.seconds,
        "facts": machine,
        "default_size": default_size(),
        "sweep": {str(size): asdict(points[size]) for size in sorted(points)},
        "best_size": best,
        "pairs": [{side: samples[side] for side in ("best", "ours")} for samples in rounds],
        "alternatives": {pool: [samples[pool] for samples in rounds] for pool in others},
        "alternative_seconds": timing.seconds,
    }


class _Bench:
    """Runs candidates on one load, each in a fresh process."""

    def __init__(self, load: Load, timing: Timing, progress: Progress) -> None:
        self._load = load
        self._timing = timing
        self._progress = progress
        runs = timing.pairs * (2 + len(ALTERNATIVES))
        progress.start(len(timing.sizes) + _MORE_SIZES + runs)

    def sweep(self) -> dict[int, Point]:
        """Measure sizes until the best is known; those that are hard to tell apart once more."""
        begin = {*self._timing.sizes, default_size()}
        taken: dict[int, list[Point]] = {}
        while sizes := next_sizes(_means(taken), begin):
            for size in sizes:
                taken[size] = [self._point(size)]
        for size in doubtful(_means(taken)):
            taken[size].append(self._point(size))
        return _means(taken)

    def round(self, best: int, others: Sequence[str]) -> Mapping[str, Sample]:
        """Run the best static pool, ours and the alternatives, each from a cold start."""
        seconds = self._timing.seconds
        return {
            "best": self._run("static", best, 0, seconds),
            "ours": self._run("hybridrt", None, 0, seconds),
            **{pool: self._run(pool, None, 0, seconds) for pool in others},
        }

    def _point(self, size: int) -> Point:
        patience = self._load.patience
        sample = self._run("static", size, patience * self._timing.warmup, patience * self._timing.sweep)
        return Point(
            rate=over_phases(sample, "rate"),
            p99=over_phases(sample, "run_p99"),
            loop=sample["loop_delay_p99"],
        )

    def _run(self, pool: str, size: int | None, warmup: float, seconds: float) -> Sample:
        name = f"{pool} {size}" if size else pool
        self._progress.show(name)
        arguments = {
            "load": self._load.name,
            "pool": pool,
            "size": size,
            "loop": "asyncio",
            "tasks": self._load.tasks,
            "warmup": warmup,
            "seconds": seconds,
        }
        return spawn(
            Candidate(
                name=f"{self._load.name}: {name}",
                job="loads",
                arguments=arguments,
                environment=self._load.environment,
            )
        )


def _means(taken: Mapping[int, list[Point]]) -> dict[int, Point]:
    return {size: _mean(points) for size, points in taken.items()}


def _mean(points: Sequence[Point]) -> Point:
    loops = [point.loop for point in points if point.loop is not None]
    return Point(
        rate=mean(point.rate for point in points),
        p99=mean(point.p99 for point in points),
        loop=mean(loops) if loops else None,
    )
