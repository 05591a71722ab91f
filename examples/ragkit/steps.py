"""Everything that leaves the event loop: plain functions under `@offload`.

Called on the loop, each gives a coroutine that runs the function in the pool; `step.sync(...)` is the
plain function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from openai import AsyncOpenAI

from hybridrt import offload

from . import llm, sources
from . import model as models
from .chunk import unique
from .encoder import Encoder, Vectors
from .index import Index
from .values import Chunk, Document, Passage, Raw, Skipped, Source

__all__ = [
    "INDEX_LANE",
    "build_index",
    "find_documents",
    "keyword_search",
    "load_encoder",
    "merge",
    "open_client",
    "read",
    "read_around",
    "vector_search",
]

INDEX_LANE = "rag-index"
"""Calls in this lane never overlap: an SQLite connection is for one thread at a time."""


@offload
def find_documents(arguments: Sequence[str]) -> list[Source | Skipped]:
    """Walk the folders named on the command line."""
    return sources.from_arguments(arguments) if arguments else list(sources.from_topics())


@offload
def read(source: Source) -> Raw:
    """Read a file."""
    return sources.read_file(source)


@offload
def merge(documents: Iterable[tuple[Document, list[Chunk]]]) -> tuple[list[Chunk], int]:
    """Gather the pieces of all documents and drop repeats."""
    return unique(documents)


@offload
def load_encoder(model: models.Model, onnx_file: Path) -> Encoder:
    """Load tokenizer and session."""
    return Encoder(model, onnx_file)


@offload
def open_client(base_url: str, api_key: str | None, local: bool) -> AsyncOpenAI:
    """Make a client for a chat endpoint: reads the certificates it will trust."""
    return llm.open_client(base_url, api_key, local=local)


@offload
def build_index(chunks: Sequence[Chunk], vectors: Vectors) -> Index:
    """Fill the matrix and the full-text table."""
    return Index(chunks, vectors)


@offload
def vector_search(index: Index, vector: Vectors, count: int) -> list[Passage]:
    """Find the nearest passages by cosine, exactly."""
    return index.by_meaning(vector, count)


@offload(lane=INDEX_LANE)
def keyword_search(index: Index, query: str, count: int) -> list[Passage]:
    """Find passages by their words, ranked by BM25."""
    return index.by_words(query, count)


@offload
def read_around(index: Index, number: int, count: int) -> list[Passage]:
    """Return a passage with its neighbours in the same section."""
    return index.around(number, count)
