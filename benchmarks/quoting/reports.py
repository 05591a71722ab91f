"""What the reports hold, and how a document says it: ranges, paragraphs, and what was measured how."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.loads.figures import Findings
from benchmarks.loads.plan import LOADS
from benchmarks.loads.store import read

__all__ = ["Reports", "between", "machine", "paragraph"]

_WIDTH = 120


class Reports:
    """The results in a folder, by name: `reports("echo-py3.11")`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, Mapping[str, Any]] = {}

    def __call__(self, name: str) -> Mapping[str, Any]:
        """Return the JSON of a report."""
        if name not in self._read:
            text = (self._folder / f"{name}.json").read_text(encoding="utf-8")
            self._read[name] = json.loads(text)
        return self._read[name]

    def loads(self, name: str) -> Mapping[str, Findings]:
        """Return the findings of each load, in the order of the plan."""
        if name not in self._read:
            self._read[name] = read(self._folder / name)
        return {load.name: self._read[name][load.name] for load in LOADS if load.name in self._read[name]}


def between(values: Iterable[float], digits: int = 2) -> str:
    """Return `lowest to highest`, or one figure where both read alike."""
    known = list(values)
    low, high = (f"{end:,.{digits}f}" for end in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"


def paragraph(text: str) -> str:
    """Return text as one paragraph of Markdown."""
    return textwrap.fill(" ".join(text.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)


def machine(report: Mapping[str, Any]) -> str:
    """Return what a table's figures are and where they were taken, as half a sentence."""
    facts = report["facts"]
    where = f"a shared machine of {facts['usable_cpus']} cores, {facts['python']}"
    return f"medians of {report['repetitions']} fresh processes, {where}"
