"""The figures that the README and `docs/figures.md` quote, made of the reports in `results/`.

A document marks where figures go: a line `<!-- figures: NAME -->`, then the text, then a line
`<!-- end of figures -->`. Between the two stands exactly what the block of that name makes of the
reports; elsewhere these documents quote no measured figure. `python -m benchmarks docs` writes the
blocks anew, `--check` only compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.harness import RESULTS
from benchmarks.quoting import calls, places, services, sizes, streams, waiting
from benchmarks.quoting.reports import Reports, sources

__all__ = ["BLOCKS", "DOCUMENTS", "MARKED", "filled", "stale"]

_ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = (_ROOT / "README.md", _ROOT / "docs" / "figures.md")
"""What quotes figures."""

BLOCKS: Mapping[str, Callable[[Reports], str]] = {
    **calls.BLOCKS,
    **places.BLOCKS,
    **services.BLOCKS,
    **sizes.BLOCKS,
    **streams.BLOCKS,
    **waiting.BLOCKS,
    "which code was measured": sources,
}
"""What makes the text of a block, by its name."""

MARKED = re.compile(r"(<!-- figures: ([^>]+?) -->\n)(.*?)(<!-- end of figures -->)", re.DOTALL)
"""A block: its first line, its name, its text, its last line."""


def filled(text: str, reports: Reports) -> str:
    """Return a document with its blocks made anew.

    Raises:
        ValueError: There is no block of a name that the document asks for.
    """
    return MARKED.sub(lambda found: found[1] + _block(found[2], reports) + "\n" + found[4], text)


def _block(name: str, reports: Reports) -> str:
    if name not in BLOCKS:
        raise ValueError(f"there is no block of figures {name!r}; there are: {', '.join(BLOCKS)}")
    return BLOCKS[name](reports)


def stale(folder: Path = RESULTS) -> Iterator[tuple[Path, str]]:
    """Yield each document that does not hold what the reports say, with the text that it should have."""
    reports = Reports(folder)
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        if (made := filled(text, reports)) != text:
            yield path, made
