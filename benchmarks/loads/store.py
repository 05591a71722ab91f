"""The findings of each load in a file of its own, so that an interrupted run can go on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Store", "read"]


class Store:
    """Findings by load: those of the folder, if there is one, and those kept since.

    Args:
        folder: Where the results of all benchmarks lie; None keeps nothing beyond this object.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder and folder / f"loads-py{sys.version_info.major}.{sys.version_info.minor}"
        self.found = {} if self._folder is None else read(self._folder)

    def keep(self, load: str, findings: Mapping[str, Any]) -> None:
        """Take in the findings of a load; a file is whole or not there."""
        self.found[load] = findings
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        beside = self._folder / f"{load}.json.partial"
        beside.write_text(json.dumps(findings, indent=1) + "\n", encoding="utf-8")
        os.replace(beside, self._folder / f"{load}.json")


def read(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the findings that lie in a folder, by load; none if it is not there."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
