"""Child: the RAG example on one executor, as people run it, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.children.protocol import serve

__all__ = ["measure"]

_SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "rag.py"


def measure(*, executor: str, arguments: Sequence[str]) -> Mapping[str, Any]:
    """Return what the example wrote to its `--json`, less the words.

    Raises:
        RuntimeError: It failed.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-rag-") as folder:
        told = Path(folder) / "report.json"
        command = [sys.executable, str(_SCRIPT), *arguments, "--executor", executor, "--json", str(told)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the example ended with code {done.returncode}:\n{done.stderr[-2000:]}")
        report = json.loads(told.read_text(encoding="utf-8"))
    answers = [{name: answer[name] for name in ("first_word", "seconds")} for answer in report["answers"]]
    return {
        "phases": report["phases"],
        "answers": answers,
        "documents": report["documents"],
        "chunks": report["chunks"],
    }


if __name__ == "__main__":
    serve(measure)
