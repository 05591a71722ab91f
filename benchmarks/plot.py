"""Draw results: of `dispatch` one dot per fresh process, of `loads` the sweeps and cold starts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.loads.picture import draw
from benchmarks.loads.store import read
from benchmarks.placement_picture import draw as draw_placement
from benchmarks.simulator.picture import draw as draw_sizes

__all__ = ["plot"]

_STRIP = {"asyncio": "#3b6fb6", "uvloop": "#c8553d"}


def plot(folder: Path) -> Iterator[Path]:
    """Draw what the folder holds results of; yield the pictures written.

    Raises:
        ModuleNotFoundError: matplotlib is missing; it is in the `bench` group.
    """
    for results in sorted(folder.glob("dispatch-py*.json")):
        yield _dispatch(json.loads(results.read_text(encoding="utf-8")), results.with_suffix(".svg"))
    for loads in sorted(path for path in folder.glob("loads-py*") if path.is_dir()):
        # Not `with_suffix`: to that, the minor version of Python is one.
        yield draw(read(loads), folder / f"{loads.name}.svg")
    for results in sorted(folder.glob("placement-py*.json")):
        yield draw_placement(json.loads(results.read_text(encoding="utf-8")), results.with_suffix(".svg"))
    for results in sorted(folder.glob("simulator-py*.json")):
        yield draw_sizes(json.loads(results.read_text(encoding="utf-8")), results.with_suffix(".svg"))


def _dispatch(data: Mapping[str, Any], picture: Path) -> Path:
    # By name, so that types can be checked without matplotlib.
    modes = list(data["wall_us"])
    figure = import_module("matplotlib.figure").Figure(figsize=(9, 3 * len(modes)), layout="constrained")
    for axes, mode in zip(figure.subplots(len(modes), 1), modes, strict=True):
        _strips(axes, _medians(data["samples"], mode))
        axes.set_title(mode, loc="left")
        axes.set_xlabel("microseconds per call (log)")
    figure.savefig(picture, metadata={"Date": None})
    return picture


def _medians(samples: Mapping[str, Sequence[Any]], mode: str) -> dict[tuple[str, str], list[float]]:
    found = {}
    for name, taken in samples.items():
        way, _, loop = name.partition(" on ")
        found[way, loop] = [median(sample["modes"][mode]["wall_us"]) for sample in taken]
    return found


def _strips(axes: Any, medians: Mapping[tuple[str, str], Sequence[float]]) -> None:
    ways = list(dict.fromkeys(way for way, _ in medians))
    for (way, loop), values in medians.items():
        row = ways.index(way) + (0.15 if loop == "uvloop" else -0.15)
        axes.plot(values, [row] * len(values), "o", alpha=0.5, color=_STRIP[loop], markersize=5)
        axes.plot(median(values), row, "|", color=_STRIP[loop], markersize=16)
    axes.set_yticks(range(len(ways)), ways)
    axes.invert_yaxis()
    axes.set_xscale("log")
    for loop, color in _STRIP.items():
        axes.plot([], [], "o", color=color, label=loop)
    axes.legend(frameon=False)
