"""Draw the named scenarios of `results/simulator-pyX.Y.json`: size and throughput over time."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["draw"]

_SHOWN = {
    "hybridrt": "#3b6fb6",
    "paper": "#c8553d",
    "BetaPool": "#d9a441",
    ".NET": "#6a8f4e",
    "Gradient2": "#8a6fb0",
    "throughput": "#5b5b5b",
}


def draw(data: Mapping[str, Any], picture: Path) -> Path:
    """Write the picture and return its path; needs matplotlib."""
    curves = data["curves"]
    # By name, so that types can be checked without matplotlib.
    figure = import_module("matplotlib.figure").Figure(figsize=(11, 2.2 * len(curves)), layout="constrained")
    for row, (name, sizers) in zip(
        figure.subplots(len(curves), 2, squeeze=False), curves.items(), strict=True
    ):
        for axes, what in zip(row, ("size", "throughput"), strict=True):
            _lines(axes, sizers, what)
        row[0].set_title(name, loc="left", fontsize=9)
        row[0].set_yscale("log")
        row[0].set_ylabel("threads (log)")
        row[1].set_ylabel("calls/s")
    figure.legend(*row[1].get_legend_handles_labels(), loc="outside upper center", ncols=len(_SHOWN))
    figure.savefig(picture, metadata={"Date": None})
    return picture


def _lines(axes: Any, sizers: Mapping[str, Any], what: str) -> None:
    for sizer, color in _SHOWN.items():
        if sizer in sizers:
            line = sizers[sizer]
            axes.plot(line["seconds"], line[what], color=color, label=sizer, linewidth=0.9)
