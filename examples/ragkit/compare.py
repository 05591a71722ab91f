"""Run the same job twice, each in a fresh process, so that neither warms the other."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .errors import RagError
from .model import find_model, prepare_onnx
from .options import Options
from .report import Report, read_report
from .view import comparison

__all__ = ["compare"]


def compare(script: Path, arguments: Sequence[str], options: Options, console: Console) -> None:
    """Print the reports of both executors side by side; `--json FILE` holds both.

    Raises:
        RagError: One of the runs failed.
    """
    prepare_onnx(find_model(options.model), int8=options.int8)  # building it is nobody's cost
    with tempfile.TemporaryDirectory(prefix="hybridrt-rag-") as folder:
        paths = {name: Path(folder) / f"{name}.json" for name in ("asyncio", "hybridrt")}
        for name, path in paths.items():
            with console.status(f"running the job on {name} ..."):
                _run(script, arguments, name, path)
        left, right = (read_report(path) for path in paths.values())
        console.print(comparison(left, right))
        if options.json is not None:
            _write(options.json, paths)


def _run(script: Path, arguments: Sequence[str], executor: str, path: Path) -> Report:
    kept = [argument for argument in arguments if argument != "--compare"]
    command = [sys.executable, str(script), *kept, "--executor", executor, "--json", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not path.is_file():
        raise RagError(
            f"expected the run on {executor} to succeed, got exit code {done.returncode}:\n"
            f"{(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return read_report(path)


def _write(target: Path, paths: dict[str, Path]) -> None:
    both = ",\n".join(f'"{name}": {path.read_text(encoding="utf-8").strip()}' for name, path in paths.items())
    target.write_text(f"{{\n{both}\n}}\n", encoding="utf-8")
