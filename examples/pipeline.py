"""Index the docstrings of a folder of Python files, and search them: one pipe, on hybridrt.

    python examples/pipeline.py "parse a date"
    python examples/pipeline.py --folder src --statistics "open a connection"

Finding and reading files, parsing them and writing the index overlap. Each step is a plain function; what
runs where is said by its kind. Without `--folder` it reads the standard library of this Python.
"""

from __future__ import annotations

import argparse
import ast
import sqlite3
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import hybridrt

_SKIPPED = {"site-packages", "test", "tests", "__pycache__", "idlelib", "lib2to3"}


@dataclass(frozen=True, slots=True)
class Passage:
    """A docstring and where it stands."""

    path: str
    line: int
    name: str
    text: str


def find(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder. A generator: it runs in a worker, a little ahead."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in _SKIPPED:
            yield from find(path)
        elif path.suffix == ".py":
            yield path


def read(path: Path) -> tuple[Path, bytes]:
    """Return a file with its content: a `def`, so it waits for the disk in a worker."""
    return path, path.read_bytes()


def parse(file: tuple[Path, bytes]) -> Iterator[Passage]:
    """Yield the docstrings of a file: one to many, and the step that computes."""
    path, content = file
    tree = ast.parse(content, str(path))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield Passage(str(path), getattr(node, "lineno", 1), getattr(node, "name", path.stem), text)


class Index:
    """A full-text index of passages, in memory; SQLite does the work."""

    def __init__(self) -> None:
        self._base = sqlite3.connect(":memory:", check_same_thread=False)
        self._base.execute("CREATE VIRTUAL TABLE passages USING fts5(path, line UNINDEXED, name, text)")

    @hybridrt.offload(batch=256, lane="index")
    def add(self, passages: list[Passage]) -> list[str]:
        """Store passages, as many at once as have come; one batch at a time, for SQLite's sake."""
        rows = [(each.path, each.line, each.name, each.text) for each in passages]
        self._base.executemany("INSERT INTO passages VALUES (?, ?, ?, ?)", rows)
        return [each.name for each in passages]

    @hybridrt.offload(lane="index")
    def search(self, words: str, most: int) -> list[tuple[str, int, str, str]]:
        """Return the passages that fit best: path, line, name and a piece of the text."""
        terms = " OR ".join(f'"{word}"' for word in words.replace('"', " ").split())
        query = (
            "SELECT path, line, name, snippet(passages, 3, '', '', ' ... ', 12) FROM passages "
            "WHERE passages MATCH ? ORDER BY rank LIMIT ?"
        )
        return self._base.execute(query, (terms, most)).fetchall()

    @hybridrt.offload(lane="index")
    def close(self) -> None:
        """Forget everything, after an `add` that a deadline has left running."""
        self._base.close()


async def build(folder: Path, index: Index, *, statistics: bool) -> tuple[int, int]:
    """Index a folder; return the number of passages and of files that could not be parsed."""
    async with hybridrt.pipe(find(folder), read, parse, index.add, ordered=False, on_error="skip") as added:
        passages = sum([1 async for _ in added])
        if statistics:
            print(added.statistics(), file=sys.stderr)
        return passages, len(added.skipped)


async def main(options: argparse.Namespace) -> int:
    """Build the index and answer the question."""
    index, begun = Index(), time.perf_counter()
    try:
        async with hybridrt.deadline(options.seconds):
            passages, skipped = await build(options.folder, index, statistics=options.statistics)
            took = time.perf_counter() - begun
            print(f"{passages} passages indexed in {took:.1f} s, {skipped} files skipped", file=sys.stderr)
            found = await index.search(options.question, options.most)
    except TimeoutError as error:
        print(f"{error}; give more --seconds, or another --folder", file=sys.stderr)
        return 1
    finally:
        await index.close()
    for path, line, name, text in found:
        print(f"{path}:{line} {name}\n    {' '.join(text.split())}")
    if not found:
        print(f"no passage has a word of {options.question!r}; ask with others", file=sys.stderr)
    return 0 if found else 1


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("question", help="words to look for")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(sysconfig.get_path("stdlib")),
        help="Python files to index; the standard library if left out",
    )
    parser.add_argument("--most", type=int, default=5, metavar="N", help="passages to show")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="deadline for all of it")
    parser.add_argument("--statistics", action="store_true", help="show where the time went")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"--folder must be a folder, got {options.folder}")
    if not options.question.replace('"', " ").split():
        parser.error(f"expected words to look for, got {options.question!r}")
    if options.most < 1:
        parser.error(f"--most must be at least 1, got {options.most}")
    if not options.seconds >= 0.0:
        parser.error(f"--seconds must be 0 or more, got {options.seconds}")
    return options


if __name__ == "__main__":
    sys.exit(hybridrt.run(main(parse_options())))
