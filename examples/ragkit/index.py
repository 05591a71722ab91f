"""Search: exact cosine over a matrix, and BM25 over SQLite FTS5."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

import numpy as np

from .encoder import Vectors
from .errors import RagError
from .values import Chunk, Passage

__all__ = ["Index"]

_TITLE_WEIGHT, _TEXT_WEIGHT = 2.0, 1.0  # not measured
_STOP_WORDS = frozenset(
    "a about an and any are as at be been between but by can did do does for from get had has have how i if "
    "in into is it its me my no not of on or our should so than that the their them then there these they "
    "this to use used was we were what when where which while who why will with would you your".split()
)


class Index:
    """Chunks, their vectors and an in-memory full-text table.

    The vectors may be searched by any number of threads at once. The database connection is for
    one thread at a time; whoever calls `by_words` sees to that.
    """

    def __init__(self, chunks: Sequence[Chunk], vectors: Vectors) -> None:
        self.chunks = tuple(chunks)
        self._vectors = vectors
        self._database = _full_text(self.chunks)

    def close(self) -> None:
        """Free the database."""
        self._database.close()

    def by_meaning(self, vector: Vectors, count: int) -> list[Passage]:
        """Return the chunks nearest to a vector of shape (dimensions,), best first."""
        scores = self._vectors @ vector
        count = min(count, len(scores))
        best = np.argpartition(-scores, count - 1)[:count]
        ordered = best[np.argsort(-scores[best], kind="stable")]
        return [Passage(id=int(i), score=float(scores[i]), chunk=self.chunks[i]) for i in ordered]

    def by_words(self, query: str, count: int) -> list[Passage]:
        """Return the chunks that share words with a query, best first; none may."""
        match = _match_expression(query)
        if not match:
            return []
        rows = self._database.execute(
            "SELECT rowid, bm25(chunks, ?, ?) AS rank FROM chunks WHERE chunks MATCH ? ORDER BY rank LIMIT ?",
            (_TITLE_WEIGHT, _TEXT_WEIGHT, match, count),
        )
        return [Passage(id=row, score=-rank, chunk=self.chunks[row]) for row, rank in rows]

    def around(self, number: int, count: int) -> list[Passage]:
        """Return up to `count` passages around one, itself included, from its own section.

        Raises:
            IndexError: No passage has that number.
        """
        if not 0 <= number < len(self.chunks):
            raise IndexError(f"expected a passage id from 0 to {len(self.chunks) - 1}, got {number}")
        wanted = self.chunks[number]
        section = [
            Passage(id=i, score=1.0, chunk=chunk)
            for i, chunk in enumerate(self.chunks)
            if (chunk.location, chunk.section) == (wanted.location, wanted.section)
        ]
        here = next(place for place, passage in enumerate(section) if passage.id == number)
        start = max(0, min(here - count // 2, len(section) - count))
        return section[start : start + count]


def _full_text(chunks: Sequence[Chunk]) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        database.execute("CREATE VIRTUAL TABLE chunks USING fts5(title, text, tokenize='porter unicode61')")
    except sqlite3.OperationalError as error:
        database.close()
        raise RagError(
            f"expected an SQLite with FTS5, got {sqlite3.sqlite_version} ({error}); use another Python build"
        ) from error
    rows = ((number, chunk.title, chunk.text) for number, chunk in enumerate(chunks))
    database.executemany("INSERT INTO chunks(rowid, title, text) VALUES (?, ?, ?)", rows)
    return database


def _match_expression(query: str) -> str:
    """Return the words of a query, quoted so that none is taken for an FTS5 operator."""
    words = dict.fromkeys(word.lower() for word in re.findall(r"\w+", query))
    telling = [word for word in words if word not in _STOP_WORDS] or list(words)
    return " OR ".join(f'"{word}"' for word in telling)
