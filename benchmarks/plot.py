"""Draw results: one dot per fresh process, of `loads` the sweeps and cold starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import inline, isolates
from benchmarks.disk import draw as draw_disk
from benchmarks.loads.picture import draw
from benchmarks.loads.store import read
from benchmarks.placement_picture import draw as draw_placement
from benchmarks.simulator.picture import draw as draw_sizes
from benchmarks.strips import Panel
from benchmarks.strips import draw as draw_strips

__all__ = ["plot"]


def plot(folder: Path) -> Iterator[Path]:
    """Draw what the folder holds results of; yield the pictures written.

    Raises:
        ModuleNotFoundError: matplotlib is missing; it is in the `bench` group.
    """
    import_module("matplotlib").rcParams["svg.hashsalt"] = "hybridrt"  # the same results, the same file
    for name, panels in _STRIPS.items():
        for results in sorted(folder.glob(f"{name}-py*.json")):
            found = panels(json.loads(results.read_text(encoding="utf-8")))
            yield draw_strips(found, results.with_suffix(".svg"))
    for loads in sorted(path for path in folder.glob("loads-py*") if path.is_dir()):
        # Not `with_suffix`: to that, the minor version of Python is one.
        yield draw(read(loads), folder / f"{loads.name}.svg")
    for results in sorted(folder.glob("placement-py*.json")):
        yield draw_placement(json.loads(results.read_text(encoding="utf-8")), results.with_suffix(".svg"))
    for results in sorted(folder.glob("disk-py*.json")):
        yield draw_disk(json.loads(results.read_text(encoding="utf-8")), results.with_suffix(".svg"))
    for results in sorted(folder.glob("simulator-py*.json")):
        yield draw_sizes(json.loads(results.read_text(encoding="utf-8")), results.with_suffix(".svg"))


def _dispatch(data: Mapping[str, Any]) -> list[Panel]:
    return [Panel(mode, "microseconds per call", _medians(data["samples"], mode)) for mode in data["wall_us"]]


def _medians(samples: Mapping[str, Sequence[Any]], mode: str) -> dict[tuple[str, str], list[float]]:
    found = {}
    for name, taken in samples.items():
        way, _, loop = name.partition(" on ")
        found[way, loop] = [median(sample["modes"][mode]["wall_us"]) for sample in taken]
    return found


_STRIPS: Mapping[str, Callable[[Mapping[str, Any]], list[Panel]]] = {
    "dispatch": _dispatch,
    "inline": inline.panels,
    "isolates": isolates.panels,
}
