"""Strip charts: one dot per fresh process, a stroke at the median, one row per way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["Dots", "Panel", "draw", "given"]

Dots = Mapping[tuple[str, str], Sequence[float]]
"""Figures by row and group."""

_COLORS = ("#3b6fb6", "#c8553d")


@dataclass(frozen=True)
class Panel:
    """One chart.

    Attributes:
        title: Stands above it.
        unit: Stands below its axis.
        dots: The figures of a row and a group; at most two groups, told by colour.
        log: The axis is logarithmic.
    """

    title: str
    unit: str
    dots: Dots
    log: bool = True


def draw(panels: Sequence[Panel], picture: Path) -> Path:
    """Draw the panels below each other; return the picture.

    Raises:
        ModuleNotFoundError: matplotlib is missing; it is in the `bench` group.
    """
    # By name, so that types can be checked without matplotlib.
    figure = import_module("matplotlib.figure").Figure(figsize=(9, 3 * len(panels)), layout="constrained")
    for axes, panel in zip(figure.subplots(len(panels), 1, squeeze=False).flat, panels, strict=True):
        _strips(axes, panel)
    figure.savefig(picture, metadata={"Date": None})
    return picture


def given(dots: Dots) -> Dots:
    """Leave out what was not measured."""
    return {key: values for key, values in dots.items() if values}


def _strips(axes: Any, panel: Panel) -> None:
    rows = list(dict.fromkeys(row for row, _ in panel.dots))
    groups = list(dict.fromkeys(group for _, group in panel.dots))
    for (row, group), values in panel.dots.items():
        at = rows.index(row) + (groups.index(group) - (len(groups) - 1) / 2) * 0.3
        color = _COLORS[groups.index(group)]
        axes.plot(values, [at] * len(values), "o", alpha=0.5, color=color, markersize=5)
        axes.plot(median(values), at, "|", color=color, markersize=16)
    axes.set_yticks(range(len(rows)), [row.replace("`", "") for row in rows])
    axes.invert_yaxis()
    if panel.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    axes.grid(axis="x", alpha=0.3)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(f"{panel.unit} (log)" if panel.log else panel.unit)
    for group, color in zip(groups, _COLORS, strict=False):
        axes.plot([], [], "o", color=color, label=group)
    axes.legend(frameon=False)
