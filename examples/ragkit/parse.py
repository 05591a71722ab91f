"""From bytes to sections of paragraphs and code, for each kind of markup."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt

from .decode import decode
from .errors import DocumentError
from .outline import read_outline
from .values import Block, Document, Raw, Section
from .web import read_html

__all__ = ["parse_document"]

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def parse_document(raw: Raw) -> Document:
    """Return the sections of a document that hold text.

    Raises:
        DocumentError: It is empty, binary, or holds no text.
    """
    if not raw.body.strip():
        raise DocumentError("empty")
    text = decode(raw.body, raw.charset).replace("\r\n", "\n").replace("\r", "\n")
    sections = tuple(section for section in _read(raw, text) if _has_words(section.blocks))
    if not sections:
        raise DocumentError("holds no text")
    return Document(source=raw.source, sections=sections)


def _read(raw: Raw, text: str) -> list[Section]:
    if raw.kind == "html":
        return read_html(text)
    if raw.kind == "markdown":
        return read_html(_markdown_to_html(text))
    return read_outline(text)


def _markdown_to_html(text: str) -> str:
    # A parser for each call: markdown-it-py promises nothing about sharing one between threads.
    return str(MarkdownIt("commonmark").enable("table").render(_FRONT_MATTER.sub("", text)))


def _has_words(blocks: tuple[Block, ...]) -> bool:
    return any(character.isalnum() for block in blocks for character in block.text)
