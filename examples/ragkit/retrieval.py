"""The tools that search the documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field

from hybridrt import tool
from hybridrt.agents import Tool

from . import steps
from .encoder import Encoder
from .index import Index
from .runners import Runner
from .values import Passage

__all__ = ["search_tools"]

_NEIGHBOURS = 5

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=20)]
Number = Annotated[int, Field(ge=0)]
Found = list[dict[str, Any]]


def search_tools(runner: Runner, encoder: Encoder, index: Index) -> list[Tool[..., Any]]:
    """Return the three tools over an index; their work runs on `runner`."""

    @tool
    async def search_by_meaning(query: Text, count: Count = 6) -> Found:
        """Find the passages nearest in meaning to a question or phrase.

        Args:
            query: What to look for, in plain words.
            count: How many passages.
        """
        tokens = await runner.call(encoder.tokenise_one, query)
        vector = await runner.call(encoder.embed_one, tokens)
        return _listed(await runner.call(steps.vector_search, index, vector, count))

    @tool
    async def search_by_words(query: Text, count: Count = 6) -> Found:
        """Find the passages that contain the words of a query, rare words first (BM25).

        Args:
            query: Words or names to look for.
            count: How many passages.
        """
        return _listed(await runner.call(steps.keyword_search, index, query, count))

    @tool
    async def read_around(id: Number) -> Found:
        """Read a passage with the ones before and after it in the same section.

        Args:
            id: The id of a passage that a search returned.
        """
        return _listed(await runner.call(steps.read_around, index, id, _NEIGHBOURS))

    return [search_by_meaning, search_by_words, read_around]


def _listed(passages: Iterable[Passage]) -> Found:
    return [
        {"id": passage.id, "title": passage.chunk.title, "text": passage.chunk.text} for passage in passages
    ]
