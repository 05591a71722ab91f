"""Split prose into sentences."""

from __future__ import annotations

import re

__all__ = ["split_sentences"]

_END = re.compile(r"""(?<=[.!?])(?P<closing>["'”’)\]]*)\s+(?=["'“‘(\[]?[A-Z0-9])""")
_ABBREVIATION = re.compile(r"""(?:\b(?:e\.g|i\.e|cf|etc|vs|Mr|Mrs|Dr|No|Fig|al|approx)|\b[A-Z])\.\Z""")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph, without splitting after `e.g.` and the like."""
    found: list[str] = []
    start = 0
    for end in _END.finditer(text):
        if not _ABBREVIATION.search(text, start, end.start()):
            found.append(text[start : end.end("closing")])
            start = end.end()
    return [sentence.strip() for sentence in [*found, text[start:]] if sentence.strip()]
