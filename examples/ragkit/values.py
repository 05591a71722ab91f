"""Frozen values that pass from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = [
    "Block",
    "Chunk",
    "Cost",
    "Document",
    "Kind",
    "Passage",
    "PoolCost",
    "Raw",
    "Resize",
    "Section",
    "Skipped",
    "Source",
    "StepCost",
]

Kind = Literal["html", "markdown", "rst", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a document is to be had.

    Attributes:
        name: Short name that citations use.
        location: What the reader can open: a path, a URL, a topic.
        kind: The markup, or None when only the content can tell.
        place: A path to read, a URL to fetch, or the bytes themselves.
    """

    name: str
    location: str
    kind: Kind | None
    place: Path | str | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """The bytes of a document; `charset` is what a server claimed, or None."""

    source: Source
    kind: Kind
    body: bytes
    charset: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph or list item on one line, or code line by line."""

    text: str
    code: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the blocks up to the next one; the heading is empty before the first."""

    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A parsed document."""

    source: Source
    sections: tuple[Section, ...]

    @property
    def size(self) -> int:
        """Characters of text."""
        return sum(len(block.text) for section in self.sections for block in section.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of one section, small enough for the embedding model.

    Attributes:
        title: What a citation shows.
        location: Where the document is to be had.
        section: Number that the pieces of one section share.
        text: Paragraphs apart by a blank line; code is indented by four spaces.
    """

    title: str
    location: str
    section: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A chunk that a search found, with its number in the index and its score (more is better)."""

    id: int
    score: float
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Skipped:
    """A document that the job left out, and why."""

    location: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What all calls of one step took; times are sums in seconds."""

    name: str
    calls: int
    failed: int
    wall: float
    cpu: float
    queue_wait: float

    @property
    def beta(self) -> float | None:
        """Raw blocking ratio, 1 - cpu/wall; None before the first call."""
        return max(0.0, 1 - self.cpu / self.wall) if self.wall else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """One sizing decision of the pool."""

    at: float
    workers: int
    previous: int
    reason: str
    queued: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCost:
    """The pool behind the steps.

    Attributes:
        policy: How it is sized.
        workers: Threads at the end; for a fixed pool, those that ever worked.
        max_workers: Its limit.
        overdrafts: Computing calls that started without a permit because they had waited too long.
        decisions: The last sizing decisions, oldest first.
        loop_delay: p50, p99, max and window in seconds as the runtime itself saw them at the end.
    """

    policy: str
    workers: int
    max_workers: int
    overdrafts: int = 0
    decisions: tuple[Resize, ...] = ()
    loop_delay: tuple[float, float, float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an executor spent on the job."""

    executor: str
    steps: tuple[StepCost, ...]
    pool: PoolCost
