"""Cut documents into pieces that fit the embedding model, and drop pieces that came before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import indent

from .sentences import split_sentences
from .values import Block, Chunk, Document, Section

__all__ = ["CHUNK_CHARACTERS", "chunk_document", "unique"]

CHUNK_CHARACTERS = 700
"""About 160 tokens of English: two to five paragraphs, below the 256 that MiniLM reads."""

CODE_INDENT = "    "


def chunk_document(document: Document) -> list[Chunk]:
    """Return the pieces of a document in order; none crosses a heading."""
    pieces: list[Chunk] = []
    for number, section in enumerate(document.sections):
        title = _title(document.source.name, section.heading)
        pieces.extend(
            Chunk(title=title, location=document.source.location, section=number, text=text)
            for text in _pack(section)
        )
    return pieces


def unique(documents: Iterable[tuple[Document, list[Chunk]]]) -> tuple[list[Chunk], int]:
    """Return the pieces without repeats, and how many were dropped.

    A text that stands in several documents is kept where it is most at home: in the shortest.
    """
    kept: dict[str, Chunk] = {}
    dropped = 0
    for _, pieces in sorted(documents, key=lambda pair: pair[0].size):
        for piece in pieces:
            dropped += piece.text in kept
            kept.setdefault(piece.text, piece)
    return list(kept.values()), dropped


def _title(name: str, heading: str) -> str:
    return f"{name}: {heading}" if heading and heading != name else name


def _pack(section: Section) -> Iterator[str]:
    """Join blocks up to the limit; one that alone is longer is cut at sentences or lines."""
    return _join((part for block in section.blocks for part in _cut(block)), "\n\n")


def _cut(block: Block) -> Iterator[str]:
    if block.code:
        return _join(_slices(indent(block.text, CODE_INDENT).split("\n")), "\n")
    return _join(_slices(split_sentences(block.text)), " ")


def _slices(parts: Iterable[str]) -> Iterator[str]:
    """Cut what has no sentence or line end within the limit, such as minified code."""
    for part in parts:
        yield from (part[i : i + CHUNK_CHARACTERS] for i in range(0, max(1, len(part)), CHUNK_CHARACTERS))


def _join(parts: Iterable[str], joint: str) -> Iterator[str]:
    held: list[str] = []
    length = 0
    for part in parts:
        if held and length + len(part) > CHUNK_CHARACTERS:
            yield joint.join(held)
            held, length = [], 0
        held.append(part)
        length += len(part) + len(joint)
    if held:
        yield joint.join(held)
