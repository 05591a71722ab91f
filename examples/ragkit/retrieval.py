"""The tools that search the documents."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field

from . import steps
from .encoder import Encoder
from .index import Index
from .runners import Runner
from .tools import Tool, Toolbox
from .values import Passage

__all__ = ["search_tools"]

_NEIGHBOURS = 5


class SearchByMeaning(BaseModel):
    """Find the passages nearest in meaning to a question or phrase."""

    model_config = ConfigDict(extra="forbid")
    query: str = Field(min_length=1, description="What to look for, in plain words.")
    count: int = Field(6, ge=1, le=20, description="How many passages.")


class SearchByWords(BaseModel):
    """Find the passages that contain the words of a query, rare words first (BM25)."""

    model_config = ConfigDict(extra="forbid")
    query: str = Field(min_length=1, description="Words or names to look for.")
    count: int = Field(6, ge=1, le=20, description="How many passages.")


class ReadAround(BaseModel):
    """Read a passage with the ones before and after it in the same section."""

    model_config = ConfigDict(extra="forbid")
    id: int = Field(ge=0, description="The id of a passage that a search returned.")


def search_tools(runner: Runner, encoder: Encoder, index: Index) -> Toolbox:
    """Return the three tools over an index; their work runs on `runner`."""

    async def by_meaning(arguments: SearchByMeaning) -> str:
        tokens = await runner.call(steps.tokenise, encoder, [arguments.query])
        vectors = await runner.call(steps.embed, encoder, tokens)
        return _listed(await runner.call(steps.vector_search, index, vectors[0], arguments.count))

    async def by_words(arguments: SearchByWords) -> str:
        return _listed(await runner.call(steps.keyword_search, index, arguments.query, arguments.count))

    async def around(arguments: ReadAround) -> str:
        return _listed(await runner.call(steps.read_around, index, arguments.id, _NEIGHBOURS))

    return Toolbox(
        Tool("search_by_meaning", SearchByMeaning, by_meaning),
        Tool("search_by_words", SearchByWords, by_words),
        Tool("read_around", ReadAround, around),
    )


def _listed(passages: Iterable[Passage]) -> str:
    rows = [
        {"id": passage.id, "title": passage.chunk.title, "text": passage.chunk.text} for passage in passages
    ]
    return json.dumps(rows, ensure_ascii=False)
