"""Run other projects' test suites without hybridrt and with it, and compare what fails.

    python -m tests.suites [anyio] [starlette] [asgiref] [cpython] [--keep FOLDER]

Needs pip and some minutes: the suites come from the package index as source distributions, into a
temporary folder with an environment of its own; CPython's are those of the interpreter that runs this.
*With* means that each event loop, asyncio's and uvloop's, has an `AdaptiveThreadPoolExecutor` as its
default executor. What fails on one side alone is run again on both, three times, because such suites have
tests that depend on time. The exit code is 1 if a test fails with us in any of these and not without.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SUBSTITUTE = Path(__file__).resolve().parent / "substitute"
SUITES = {"anyio": "anyio==4.16.0", "starlette": "starlette==1.10.0", "asgiref": "asgiref==3.13.0"}
NEEDS = [
    *["anyio[trio]==4.16.0", "starlette[full]==1.10.0", "asgiref==3.13.0"],
    *["blockbuster", "hypothesis", "pytest", "pytest-asyncio", "pytest-mock", "pytest-timeout"],
    *["httpx", "httpx2", "importlib-metadata", "opentelemetry-sdk", "trustme", "truststore", "uvloop"],
]
OPTIONS = {
    "anyio": ["-p", "no:cacheprovider", "-m", "not network"],
    "starlette": ["-p", "no:cacheprovider", "-p", "no:asyncio"],
    "asgiref": ["-p", "no:cacheprovider", "-p", "no:anyio"],
}
EXPECTED = {
    "tests/test_pytest_plugin.py::test_asyncio": (
        "counts all threads when a loop has closed; the governor's outlives the executors for some seconds"
    ),
}
"""What fails with us for a reason that is no fault."""
SECONDS = 1200
"""What one run of a suite may take."""
REPEATS = 3
"""Further runs of a test that has failed on one side alone."""


@dataclass
class Outcome:
    """What came of one run."""

    ran: int = 0
    skipped: int = 0
    failed: set[str] = field(default_factory=set)


def environment(*, ours: bool) -> dict[str, str]:
    """Return the environment of a run."""
    chosen = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if ours:
        chosen["PYTHONPATH"] = os.pathsep.join((str(SUBSTITUTE), str(ROOT)))
    return chosen


def run_pytest(python: str, folder: Path, options: list[str], tests: list[str], *, ours: bool) -> Outcome:
    """Run tests of a suite by pytest."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-q", f"--junitxml={report}", *options, *tests]
    subprocess.run(command, cwd=folder, env=environment(ours=ours), timeout=SECONDS, capture_output=True)
    outcome = Outcome()
    for case in ElementTree.parse(report).iter("testcase"):
        outcome.ran += 1
        outcome.skipped += case.find("skipped") is not None
        if case.find("failure") is not None or case.find("error") is not None:
            path, *classes = _split(folder, case.get("classname", ""))
            outcome.failed.add("::".join((path, *classes, case.get("name", ""))))
    return outcome


def _split(folder: Path, name: str) -> list[str]:
    """Return the file and the classes that junit's dotted name stands for."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = Path(*parts[:length]).with_suffix(".py")
        if (folder / path).is_file():
            return [str(path), *parts[length:]]
    return [name]


def run_cpython(python: str, tests: list[str], *, ours: bool) -> Outcome:
    """Run tests of CPython's asyncio by unittest."""
    command = [python, "-m", "unittest", "-q", *(tests or ["test.test_asyncio"])]
    done = subprocess.run(
        command, env=environment(ours=ours), timeout=SECONDS, capture_output=True, text=True, errors="replace"
    )
    ran = re.search(r"^Ran (\d+) tests?", done.stderr, re.MULTILINE)
    skipped = re.search(r"skipped=(\d+)", done.stderr)
    if ran is None:
        raise RuntimeError(f"unittest has not come to its end:\n{done.stderr[-2000:]}")
    failed = re.findall(r"^(?:FAIL|ERROR): .*\(([\w.]+)\)", done.stderr, re.MULTILINE)
    return Outcome(int(ran[1]), int(skipped[1]) if skipped else 0, set(failed))


def prepare(folder: Path, suites: list[str]) -> str:
    """Make an environment with what the suites need, fetch them, and return its interpreter."""
    python = str(folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python")
    if not Path(python).exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", str(ROOT), *NEEDS], check=True)
    for suite in suites:
        if suite in SUITES and not _source(folder, suite).is_dir():
            fetch = ["download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(folder), SUITES[suite]]
            subprocess.run([python, "-m", "pip", *fetch], check=True)
            with tarfile.open(f"{_source(folder, suite)}.tar.gz") as archive:
                archive.extractall(folder, filter="data")
    return python


def _source(folder: Path, suite: str) -> Path:
    return folder / SUITES[suite].replace("==", "-")


def run(python: str, folder: Path, suite: str, tests: list[str], *, ours: bool) -> Outcome:
    """Run a suite, or some tests of it."""
    if suite == "cpython":
        return run_cpython(python, tests, ours=ours)
    return run_pytest(python, _source(folder, suite), OPTIONS[suite], tests, ours=ours)


def compare(python: str, folder: Path, suite: str) -> bool:
    """Run a suite on both sides, say what came of it, and return True if no test fails with us alone."""
    outcomes = {ours: run(python, folder, suite, [], ours=ours) for ours in (False, True)}
    for ours, outcome in outcomes.items():
        side = "with hybridrt" if ours else "without it"
        print(f"{suite}, {side}: {outcome.ran} ran, {outcome.skipped} skipped, {len(outcome.failed)} failed")
    differing = sorted(outcomes[False].failed ^ outcomes[True].failed)
    again: dict[bool, set[str]] = {False: set(), True: set()}
    for _ in range(REPEATS if differing else 0):
        for ours in (False, True):
            again[ours] |= run(python, folder, suite, differing, ours=ours).failed
    without = outcomes[False].failed | again[False]
    alone = (outcomes[True].failed & again[True]) - without - EXPECTED.keys()
    for name in sorted(without | outcomes[True].failed):
        if name in alone:
            print(f"  FAILS WITH HYBRIDRT ALONE: {name}")
        elif name in EXPECTED and name not in without:
            print(f"  fails with hybridrt alone, as is known: {name}, which {EXPECTED[name]}")
        elif name in again[True] | outcomes[True].failed and name in without:
            print(f"  fails on both sides: {name}")
        else:
            print(f"  failed once, on one side: {name}")
    return not alone


def main() -> int:
    """Run the suites that were asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.suites", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("suites", nargs="*", help=f"{', '.join((*SUITES, 'cpython'))}; all if none is named")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="put all of it there, and leave it")
    arguments = parser.parse_args()
    suites = arguments.suites or [*SUITES, "cpython"]
    if unknown := sorted(set(suites) - {*SUITES, "cpython"}):
        parser.error(f"expected some of {', '.join((*SUITES, 'cpython'))}, got {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        python = prepare(folder, suites)
        fine = [compare(python, folder, suite) for suite in suites]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
