"""What is run: the loads, how many calls are in flight, and for how long. Knows no processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.harness import importable

__all__ = ["LOADS", "OFFICIAL", "QUICK", "SHORT", "Load", "Timing", "choose", "is_measured"]

_NEEDED = ("numpy",)
"""By the child, for its arithmetic."""

_ONE_BLAS_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load.

    Attributes:
        name: Key in the results and in the child.
        title: What a call does.
        tasks: Calls in flight, well above the best size; where a call only waits, no size is.
        headline: Of the fourteen loads that the paper has too.
        needs: Modules without which it is left out.
        patience: Times the usual seconds of a size in the sweep: where all calls in flight take long, and 256
            threads that share a GIL or two cores end the first of them when all are nearly through.
    """

    name: str
    title: str
    tasks: int = 256
    headline: bool = False
    needs: tuple[str, ...] = ()
    patience: float = 1.0
    environment: Mapping[str, str] = field(default_factory=lambda: _ONE_BLAS_THREAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds and repetitions.

    Attributes:
        pairs: Runs of ours and of each alternative, next to the best static size.
        seconds: Seconds of each of these runs, cold start included.
        sweep: Seconds of a size in the sweep, after `warmup`; times the load's `patience`.
        warmup: Seconds of a size in the sweep that do not count; likewise.
        sizes: Sizes that the sweep begins with.
    """

    pairs: int
    seconds: float
    sweep: float
    warmup: float
    sizes: tuple[int, ...]


OFFICIAL = Timing(
    pairs=5,
    seconds=15.0,
    sweep=1.0,
    warmup=0.25,
    sizes=(1, 4, 16, 32, 64, 256),
)
SHORT = replace(OFFICIAL, pairs=3, seconds=6.0)
"""A third of the time; the report says so."""
QUICK = Timing(pairs=1, seconds=1.0, sweep=0.2, warmup=0.1, sizes=(1, 16, 256))

LOADS = (
    Load(
        name="vision",
        title="camera frame: normalise, MobileNetV2 in ONNX Runtime",
        tasks=128,
        headline=True,
        needs=("onnx", "onnxruntime"),
        patience=4.0,
    ),
    Load(name="voice", title="3 s of sound to MFCC in numpy", tasks=128, headline=True),
    Load(name="fusion", title="20 ms for a sensor, Kalman filter in numpy", headline=True),
    Load(name="rag", title="HTTP to a vector store, 30 ms; JSON of 190 kB", headline=True, patience=2.0),
    Load(
        name="slm",
        title="four layers of attention in numpy",
        tasks=128,
        headline=True,
        patience=2.0,
    ),
    Load(
        name="analytics",
        title="pandas: rolling means and aggregates",
        tasks=128,
        headline=True,
        needs=("pandas",),
    ),
    Load(
        name="onnx",
        title="50 ms of I/O, MobileNetV2 in ONNX Runtime",
        headline=True,
        needs=("onnx", "onnxruntime"),
        patience=4.0,
    ),
    Load(name="mixed", title="10 ms of Python, 50 ms of waiting", headline=True, patience=8.0),
    Load(name="io-heavy", title="100 iterations, 1 ms", headline=True),
    Load(name="io-dominant", title="500 iterations, 0.5 ms", headline=True),
    Load(name="balanced", title="1,000 iterations, 0.1 ms", headline=True),
    Load(name="cpu-leaning", title="2,000 iterations, 0.05 ms", headline=True),
    Load(name="cpu-heavy", title="5,000 iterations, 0.01 ms", headline=True),
    Load(name="cpu-dominant", title="10,000 iterations, 0.001 ms", headline=True),
    Load(name="compute", title="10 ms of Python", tasks=128, patience=4.0),
    Load(name="hash", title="SHA-256 of 8 MiB", tasks=128),
    Load(name="wait", title="50 ms of waiting"),
    Load(name="disk", title="write 64 KiB", tasks=128),
    Load(name="disk-fsync", title="write 64 KiB and fsync", tasks=128),
    Load(name="two-phase", title="20 ms of waiting, for half the run; then 5 ms of Python", patience=8.0),
)
"""In the order of the report: the seven edge workloads, the paper's synthetic ones, and known shapes."""


def is_measured(findings: Mapping[str, Any] | None, timing: Timing) -> bool:
    """Return True if there are findings of a load, from runs as long and as many as those of a timing."""
    if findings is None:
        return False
    return (findings["seconds"], len(findings["pairs"])) == (timing.seconds, timing.pairs)


def choose(only: Sequence[str], loads: Sequence[Load] = LOADS) -> tuple[list[Load], list[str]]:
    """Return the loads to run, and the names of those that this environment cannot run.

    Raises:
        ValueError: A name in `only` is no load, or nothing of what is wanted can run.
    """
    names = [load.name for load in loads]
    if unknown := [name for name in only if name not in names]:
        raise ValueError(f"--only must name loads, got {', '.join(unknown)}; there are: {', '.join(names)}")
    wanted = [load for load in loads if not only or load.name in only]
    able = [load for load in wanted if all(map(importable, _NEEDED + load.needs))]
    if not able:
        needs = ", ".join(sorted({module for load in wanted for module in load.needs}))
        raise ValueError(f"the loads need {needs}: install the `bench` group to run them")
    return able, [load.name for load in wanted if load not in able]
