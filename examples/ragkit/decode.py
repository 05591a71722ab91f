"""From bytes to text: which encoding, and is it text at all."""

from __future__ import annotations

import codecs
import re

from .errors import DocumentError

__all__ = ["decode", "looks_binary"]

_SNIFFED = 8192
_CONTROL_SHARE_MAX = 0.02  # not measured: real text has none but tab, newline and form feed
_CONTROL = frozenset(range(32)) - frozenset(b"\t\n\r\f\x1b")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with the same two bytes
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)


def decode(body: bytes, charset: str | None = None) -> str:
    """Return the text of `body`.

    A byte order mark wins, then UTF-8, then what the server or an HTML `<meta>` claims, then
    Windows-1252, which reads anything.

    Raises:
        DocumentError: The bytes are not text.
    """
    marked = _marked_encoding(body)
    if marked is None and looks_binary(body):
        raise DocumentError("binary, not text")
    for encoding in (marked, "utf-8", charset, _meta_charset(body)):
        text = _try(body, encoding)
        if text is not None:
            return text
    return body.decode("cp1252", errors="replace")


def looks_binary(body: bytes) -> bool:
    """Say whether the first bytes hold a NUL or more control characters than text has."""
    head = body[:_SNIFFED]
    control = sum(byte in _CONTROL for byte in head)
    return 0 in head or control > _CONTROL_SHARE_MAX * len(head)


def _marked_encoding(body: bytes) -> str | None:
    return next((name for mark, name in _BOMS if body.startswith(mark)), None)


def _meta_charset(body: bytes) -> str | None:
    found = _META.search(body, 0, _SNIFFED)
    return found[1].decode("ascii") if found else None


def _try(body: bytes, encoding: str | None) -> str | None:
    try:
        return body.decode(encoding) if encoding else None
    except (LookupError, UnicodeError):
        return None
