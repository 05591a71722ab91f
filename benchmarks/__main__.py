"""`python -m benchmarks`: list the benchmarks, or run some of them."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import RESULTS, ChildError, Options, Report, write

__all__ = ["main"]

BENCHMARKS = (
    "dispatch",
    "measuring",
    "memory",
    "fairness",
    "starts",
    "gil",
    "cost",
    "background",
    "loads",
    "disk",
    "echo",
    "mixed",
    "gateway",
    "frameworks",
    "agents",
    "rag",
    "phases",
    "service",
    "inline",
    "isolates",
    "carrying",
    "placement",
    "lost_workers",
    "interrupts",
    "streams",
    "simulator",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and return the exit code."""
    asked = _parser().parse_args(arguments)
    if asked.name is None:
        _list()
        return 0
    if asked.name == "docs":
        return _quote(check=asked.check)
    if asked.name == "plot":
        return _plot(asked.out or RESULTS)
    folder = asked.out or (None if asked.quick or asked.only else RESULTS)
    options = Options(
        quick=asked.quick,
        only=tuple(asked.only),
        folder=folder,
        resume=asked.resume,
        short=asked.short,
    )
    try:
        for name in BENCHMARKS if asked.name == "all" else (asked.name,):
            _publish(importlib.import_module(f"benchmarks.{name}").run(options), folder)
    except (ChildError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "name", nargs="?", choices=(*BENCHMARKS, "all", "plot", "docs"), help="what to run; nothing lists"
    )
    parser.add_argument(
        "--check", action="store_true", help="with docs: say what is not up to date, write nothing"
    )
    parser.add_argument("--quick", action="store_true", help="short and imprecise; only prints")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PART",
        help="candidates whose name has this, or the loads named; only prints",
    )
    parser.add_argument(
        "--short", action="store_true", help="with loads: fewer and shorter runs, an hour in all"
    )
    parser.add_argument("--resume", action="store_true", help="keep what an interrupted run has written")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write JSON and Markdown here")
    return parser


def _list() -> None:
    for name in BENCHMARKS:
        question = (importlib.import_module(f"benchmarks.{name}").__doc__ or "").splitlines()[0]
        print(f"{name:12} {question}")


def _plot(folder: Path) -> int:
    """Draw results; matplotlib is needed for nothing else, so it is imported here alone."""
    from benchmarks.plot import plot

    for picture in plot(folder):
        print(f"wrote {picture.name}", file=sys.stderr)
    return 0


def _quote(*, check: bool) -> int:
    """Bring the figures in the documents up to date with the reports, or fail if they are not."""
    from benchmarks.quoting import stale

    late = list(stale())
    for path, made in late:
        if not check:
            path.write_text(made, encoding="utf-8")
        print(f"{path.name}: {'out of date' if check else 'written'}", file=sys.stderr)
    return int(check and bool(late))


def _publish(report: Report, folder: Path | None) -> None:
    print(report.text)
    if folder is not None:
        for path in write(report, folder):
            print(f"wrote {path.name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
