"""Draw the findings: efficiency by load, the sweep behind it, and the first seconds from cold."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.loads.figures import Findings, paired
from benchmarks.loads.plan import LOADS

__all__ = ["draw"]

_OURS, _STATIC = "#c8553d", "#3b6fb6"
_COLD_SECONDS = 3.0
_BUCKET = 0.1


def draw(found: Mapping[str, Findings], picture: Path) -> Path:
    """Draw one row per load: throughput by static size, and the cold start of ours beside the best."""
    ordered = [found[load.name] for load in LOADS if load.name in found]
    # By name, so that types can be checked without matplotlib.
    size = (10, 1.8 * len(ordered))
    figure = import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
    rows = figure.subplots(len(ordered), 2, squeeze=False)
    for (left, right), findings in zip(rows, ordered, strict=True):
        _sweep(left, findings)
        _cold_start(right, findings)
    rows[-1][0].set_xlabel("threads (log)")
    rows[-1][1].set_xlabel("seconds from a cold start")
    figure.savefig(picture, metadata={"Date": None})
    return picture


def _sweep(axes: Any, findings: Findings) -> None:
    points = {int(size): point["rate"] for size, point in findings["sweep"].items()}
    axes.plot(list(points), list(points.values()), "o-", color=_STATIC, markersize=4, label="static")
    axes.axhline(median(paired(findings, "rate")[0]), color=_OURS, label="hybridrt, from cold")
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_title(f"{findings['load']}: calls per second", loc="left")
    axes.legend(frameon=False, fontsize="small")


def _cold_start(axes: Any, findings: Findings) -> None:
    for side, color in (("best", _STATIC), ("ours", _OURS)):
        timelines = [pair[side]["phases"][0]["timeline"] for pair in findings["pairs"]]
        rates = [mean(column) / _BUCKET for column in zip(*timelines, strict=True)]
        seconds = [number * _BUCKET for number in range(len(rates))]
        shown = int(_COLD_SECONDS / _BUCKET)
        axes.plot(seconds[:shown], rates[:shown], color=color)
    axes.set_ylim(bottom=0)
