"""Draws `placement`: for each function what the placements cost, and which one was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["draw"]

_COLORS = {"inline": "#5a9e5a", "thread": "#3b6fb6", "isolate": "#c8553d"}


def draw(data: Mapping[str, Any], picture: Path) -> Path:
    """Draw the rows of one result; return the picture.

    Raises:
        ModuleNotFoundError: matplotlib is missing; it is in the `bench` group.
    """
    # By name, so that types can be checked without matplotlib.
    figure = import_module("matplotlib.figure").Figure(figsize=(9, 7), layout="constrained")
    axes = figure.subplots()
    for place, color in _COLORS.items():
        costs = [row["us"][place] for row in data["rows"]]
        axes.plot(costs, range(len(costs)), "o", color=color, label=place, alpha=0.8)
    chosen = [row["us"][row["chosen"]] for row in data["rows"]]
    axes.plot(
        chosen,
        range(len(chosen)),
        "o",
        markersize=12,
        markerfacecolor="none",
        color="#444444",
        label="chosen",
    )
    axes.set_yticks(range(len(chosen)), [f"{row['name']} ({row['kind']})" for row in data["rows"]])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("microseconds per call with eight callers at once (log)")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(picture, metadata={"Date": None})
    return picture
