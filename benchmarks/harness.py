"""Run candidates in fresh processes, interleaved, and keep what they print.

The parent's end of the protocol of `benchmarks.children`. It does not know what is measured; the
arithmetic on the samples is in `benchmarks.figures`.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path
from typing import Any, TextIO

__all__ = [
    "RESULTS",
    "Candidate",
    "ChildError",
    "Options",
    "Progress",
    "Report",
    "Sample",
    "collect",
    "commit",
    "describe",
    "facts",
    "header",
    "importable",
    "interleave",
    "measure",
    "origin",
    "select",
    "spawn",
    "version",
    "write",
]

Sample = Mapping[str, Any]

_ROOT = Path(__file__).resolve().parent.parent
RESULTS = _ROOT / "benchmarks" / "results"

_CHILD_TIMEOUT = 600.0
_MEASURED = ("hybridrt", "benchmarks", "examples")
"""Folders of the code that runs: `gateway` and `rag` measure examples."""
_LIBRARIES = ("anyio", "psutil", "uvloop")
_DISTURBING = ("HYBRIDRT_", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONTRACEMALLOC", "PYTHONMALLOC")
"""Variables of the caller that would change what is measured; children do not inherit them."""


class ChildError(RuntimeError):
    """A candidate's process failed or printed no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One thing to measure, in a process of its own.

    Attributes:
        name: Key of its samples.
        job: A module of `benchmarks.children`.
        arguments: What the job is called with; must survive JSON.
        needs: Modules without which the candidate is left out.
        environment: Variables to set for the process.
    """

    name: str
    job: str
    arguments: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asks of a benchmark.

    Attributes:
        quick: Short and few repetitions: shows that it runs, not what it measures.
        only: Names, or parts of names, of the candidates to run; empty runs all.
        folder: Where results go, or None where they are only printed.
        resume: Keep what an interrupted run has written there, if the benchmark can.
        short: Fewer and shorter runs, if the benchmark knows such.
    """

    quick: bool = False
    only: tuple[str, ...] = ()
    folder: Path | None = None
    resume: bool = False
    short: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a benchmark found: Markdown for people and data for programs."""

    name: str
    text: str
    data: Mapping[str, Any]


def select(candidates: Sequence[Candidate], only: Sequence[str]) -> tuple[list[Candidate], list[str]]:
    """Return the candidates to run and the names of those that this machine cannot run.

    Raises:
        ValueError: Nothing matches `only`, or nothing of what does can run.
    """
    wanted = [c for c in candidates if not only or any(part in c.name for part in only)]
    if not wanted:
        names = ", ".join(sorted({c.name for c in candidates}))
        raise ValueError(f"--only must match a candidate, got {', '.join(only)}; there are: {names}")
    able = [c for c in wanted if all(map(importable, c.needs))]
    if not able:
        needs = ", ".join(sorted({module for c in wanted for module in c.needs}))
        raise ValueError(f"the candidates need {needs}: install the `bench` group to run them")
    return able, [c.name for c in wanted if c not in able]


def importable(module: str) -> bool:
    """Return True if a module is there, in the checkout (where the children run) or installed."""
    return util.find_spec(module) is not None


def interleave(candidates: Sequence[Candidate], repetitions: int) -> list[Candidate]:
    """Return A B C, A B C, ...: a drift of the machine hits all candidates alike."""
    return [candidate for _ in range(repetitions) for candidate in candidates]


def collect(schedule: Sequence[Candidate], progress: Progress) -> dict[str, list[Sample]]:
    """Run the schedule and return the samples by candidate, each in the order of its repetitions."""
    samples: dict[str, list[Sample]] = {}
    progress.start(len(schedule))
    for candidate in schedule:
        progress.show(candidate.name)
        samples.setdefault(candidate.name, []).append(spawn(candidate))
    progress.end()
    return samples


def measure(
    name: str, doc: str | None, options: Options, candidates: Sequence[Candidate], repetitions: int
) -> tuple[dict[str, Any], dict[str, list[Sample]]]:
    """Run the candidates asked for, interleaved; return the head of the report and the samples.

    Args:
        name: Of the benchmark.
        doc: Its docstring.
        options: As the command line gave them.
        candidates: All that there are.
        repetitions: Fresh processes per candidate.

    Raises:
        ValueError: Nothing matches `options.only`, or nothing of what does can run.
        ChildError: A process failed or printed no result.
    """
    chosen, absent = select(candidates, options.only)
    head = header(doc, options, repetitions, absent)
    return head, collect(interleave(chosen, repetitions), Progress(name))


def spawn(candidate: Candidate) -> Sample:
    """Run a candidate in a fresh process and return the JSON object it printed.

    Raises:
        ChildError: The process failed, did not end in time or printed something else.
    """
    command = [sys.executable, "-m", f"benchmarks.children.{candidate.job}", json.dumps(candidate.arguments)]
    try:
        done = subprocess.run(
            command,
            cwd=_ROOT,
            env=_environment(candidate),
            text=True,
            capture_output=True,
            timeout=_CHILD_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise ChildError(f"{candidate.name} must end within {_CHILD_TIMEOUT:g} s, and did not") from error
    if done.returncode:
        raise ChildError(f"{candidate.name} ended with code {done.returncode}:\n{done.stderr}")
    return _parse(candidate.name, done.stdout)


def _environment(candidate: Candidate) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_DISTURBING)}
    return inherited | dict(candidate.environment)


def _parse(name: str, printed: str) -> Sample:
    try:
        sample = json.loads(printed.splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise ChildError(f"{name} must print one line of JSON, got {printed!r}") from error
    if not isinstance(sample, dict):
        raise ChildError(f"{name} must print a JSON object, got {printed!r}")
    return sample


class Progress:
    """A counter on standard error: one line that is rewritten on a terminal, else a line per tenth."""

    def __init__(self, title: str, stream: TextIO | None = None) -> None:
        self._title = title
        self._stream = sys.stderr if stream is None else stream
        self._total = self._done = 0
        self._began = 0.0

    def start(self, total: int) -> None:
        """Begin to count to `total`."""
        self._total, self._done, self._began = total, 0, time.monotonic()

    def show(self, what: str) -> None:
        """Tell that `what` runs now."""
        line = f"{self._title} {self._done + 1}/{self._total} {what}{self._left()}"
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{line}")
        elif self._done * 10 // self._total != (self._done - 1) * 10 // self._total:
            self._stream.write(line + "\n")
        self._stream.flush()
        self._done += 1

    def end(self) -> None:
        """Clear the line."""
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _left(self) -> str:
        if not self._done:
            return ""
        each = (time.monotonic() - self._began) / self._done
        return f", {max(0.0, each * (self._total - self._done)):.0f} s left"


def facts() -> dict[str, Any]:
    """Return what a reader must know of the machine: no names, no paths."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "usable_cpus": _usable_cpus(),
        "switch_interval_s": sys.getswitchinterval(),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "libraries": {name: version(name) for name in _LIBRARIES},
    }


def commit(root: Path = _ROOT) -> str | None:
    """Return the commit of the code that runs, with a word if files of it were changed.

    None where `root` is not the top of a git checkout, or there is no git. Results do not count as changes:
    a run of all benchmarks writes them while it goes on.
    """
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "--short=7", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", *_MEASURED, ":!benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head} with uncommitted changes" if changed else head


def _git(root: Path, *command: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def origin(machine: Mapping[str, Any]) -> str:
    """Return in words which code was measured, as far as the facts of a run tell.

    `recorded_with` is the commit that brought the results of a run that did not note its own, or noted one
    that is not in the history.
    """
    found, recorded = machine.get("commit"), machine.get("recorded_with")
    if not found and not recorded:
        return "not of a git checkout"
    said = f"commit {found or 'not noted'}"
    return f"{said}, recorded with {recorded}" if recorded else said


def header(doc: str | None, options: Options, repetitions: int, absent: Sequence[str]) -> dict[str, Any]:
    """Return what every report begins with; taken before the run, for its load.

    Args:
        doc: The docstring of the benchmark; its first line is the question.
        options: As the command line gave them.
        repetitions: Fresh processes per candidate.
        absent: Candidates that this machine cannot run.
    """
    return {
        "question": (doc or "").partition("\n")[0],
        "facts": facts(),
        "quick": options.quick,
        "repetitions": repetitions,
        "absent": list(absent),
    }


def describe(head: Mapping[str, Any], made_of: str = "One run") -> str:
    """Return a header as one paragraph for the end of a report, which was put together from `made_of`."""
    machine = head["facts"]
    libraries = ", ".join(f"{name} {version or 'absent'}" for name, version in machine["libraries"].items())
    return " ".join(
        [
            f"{made_of}: {machine['date']}, {origin(machine)}; {machine['python']} on {machine['system']},",
            f"{machine['usable_cpus']} of {machine['cpus']} CPUs usable,",
            f"load before the run {machine['load_before']}; {libraries}.",
            *(
                ["Left out, a module is missing: " + ", ".join(head["absent"]) + "."]
                if head["absent"]
                else []
            ),
            *(["A quick run: it shows that it runs, not what it measures."] if head["quick"] else []),
        ]
    )


def _usable_cpus() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def version(library: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def write(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write a report as `NAME-pyX.Y.json` and `.md`; return both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{report.name}-py{sys.version_info.major}.{sys.version_info.minor}"
    data, text = folder / f"{stem}.json", folder / f"{stem}.md"
    data.write_text(json.dumps(report.data, indent=1) + "\n", encoding="utf-8")
    text.write_text(report.text + "\n", encoding="utf-8")
    return data, text
