"""The step that parses and cuts a document.

In a module of its own, because it may run in another process, which imports this module and no more.
"""

from __future__ import annotations

from hybridrt import offload

from .chunk import chunk_document
from .parse import parse_document
from .values import Chunk, Document, Raw

__all__ = ["parse"]


@offload(pure=True)
def parse(raw: Raw) -> tuple[Document, list[Chunk]]:
    """Turn markup into sections of text, and those into pieces that fit the model."""
    document = parse_document(raw)
    return document, chunk_document(document)
