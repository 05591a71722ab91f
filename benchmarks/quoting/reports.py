"""What the reports hold, and how a document says it: ranges, paragraphs, and what was measured how."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import table
from benchmarks.harness import origin
from benchmarks.loads.figures import Findings
from benchmarks.loads.plan import LOADS
from benchmarks.loads.store import read

__all__ = ["QUOTED", "Reports", "between", "delay", "machine", "paragraph", "sources"]

QUOTED = (
    "agents-py3.13",
    "cost-py3.13",
    "dispatch-py3.13",
    "echo-py3.13",
    "frameworks-py3.13",
    "inline-py3.13",
    "isolates-py3.11",
    "isolates-py3.14",
    "loads-py3.13",
    "lost_workers-py3.13",
    "measuring-py3.13",
    "mixed-py3.13",
    "phases-py3.13",
    "placement-py3.13",
    "rag-py3.13",
    "service-py3.13",
    "streams-py3.13",
)
"""The reports that blocks are made of."""

_WIDTH = 120


class Reports:
    """The results in a folder, by name: `reports("echo-py3.13")`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, Mapping[str, Any]] = {}
        self._loads: dict[str, Mapping[str, Findings]] = {}

    def __call__(self, name: str) -> Mapping[str, Any]:
        """Return the JSON of a report.

        Raises:
            KeyError: It is not among the reports that are named as quoted.
        """
        if name not in QUOTED:
            raise KeyError(name)
        if name not in self._read:
            text = (self._folder / f"{name}.json").read_text(encoding="utf-8")
            self._read[name] = json.loads(text)
        return self._read[name]

    def loads(self, name: str) -> Mapping[str, Findings]:
        """Return the findings of each load, in the order of the plan."""
        if name not in self._loads:
            found = read(self._folder / name)
            self._loads[name] = {load.name: found[load.name] for load in LOADS if load.name in found}
        return self._loads[name]


def between(values: Iterable[float], digits: int = 2) -> str:
    """Return `lowest to highest`, or one figure where both read alike."""
    known = list(values)
    low, high = (f"{end:,.{digits}f}" for end in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"


def delay(ms: float) -> str:
    """Return milliseconds, with a digit after the point where it tells something."""
    return f"{ms:.1f}" if ms < 10 else f"{ms:.0f}"


def paragraph(text: str) -> str:
    """Return text as one paragraph of Markdown."""
    return textwrap.fill(" ".join(text.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)


def machine(report: Mapping[str, Any]) -> str:
    """Return what a table's figures are and where they were taken, as half a sentence."""
    facts = report["facts"]
    where = f"a shared machine of {facts['usable_cpus']} cores, {facts['python']}"
    return f"medians of {report['repetitions']} fresh processes, {where}"


def sources(reports: Reports) -> str:
    """Return the quoted reports as a table: when each was made, and of which code."""
    rows = []
    for name in QUOTED:
        facts = reports(name)["facts"]
        rows.append((f"[{name}](../benchmarks/results/{name}.md)", facts["date"], origin(facts)))
    return table(("report", "date", "code"), rows)
