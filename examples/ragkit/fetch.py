"""Fetch documents over HTTP: on the loop, with a limit to everything."""

from __future__ import annotations

from email.message import Message

import aiohttp

from .errors import DocumentError
from .sources import FILE_BYTES_MAX
from .values import Kind, Raw, Source

__all__ = ["fetch", "open_session"]

_TOTAL_TIMEOUT = 30.0
_CONNECT_TIMEOUT = 10.0
_CONNECTIONS_MAX = 16
_PIECE = 64 * 1024

_KINDS: dict[str, Kind] = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "markdown",
    "text/x-rst": "rst",
    "text/prs.fallenstein.rst": "rst",
}
_TEXTUAL = ("text/", "application/xhtml", "application/json", "application/xml")
_UNTYPED = ("", "application/octet-stream", "binary/octet-stream")


def open_session() -> aiohttp.ClientSession:
    """Return a session that waits for nothing for ever; proxies come from the environment."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=_TOTAL_TIMEOUT, sock_connect=_CONNECT_TIMEOUT),
        connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX),
        headers={"User-Agent": "hybridrt-rag-example", "Accept": "text/html, text/*;q=0.9, */*;q=0.1"},
        trust_env=True,
    )


async def fetch(session: aiohttp.ClientSession, source: Source, bytes_max: int = FILE_BYTES_MAX) -> Raw:
    """Fetch one page.

    Raises:
        DocumentError: It cannot be had, is no text by its type, or is larger than `bytes_max`.
    """
    try:
        async with session.get(source.location) as response:
            if response.status >= 400:
                raise DocumentError(f"the server said {response.status} {response.reason or ''}".rstrip())
            kind, charset = _content_type(response.headers.get("Content-Type", ""), source)
            return Raw(source=source, kind=kind, body=await _body(response, bytes_max), charset=charset)
    except TimeoutError as error:
        raise DocumentError(f"cannot be fetched: no answer in {_TOTAL_TIMEOUT:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise DocumentError(f"cannot be fetched: {str(error) or type(error).__name__}") from error


def _content_type(header: str, source: Source) -> tuple[Kind, str | None]:
    """Return the kind and the charset; a name like `notes.md` tells more than `text/plain`."""
    message = Message()
    message["Content-Type"] = header
    mime = message.get_content_type() if header else ""
    if mime not in _UNTYPED and not mime.startswith(_TEXTUAL):
        raise DocumentError(f"binary or unknown content ({mime})")
    return _KINDS.get(mime) or source.kind or "text", message.get_content_charset()


async def _body(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_chunked(_PIECE):
        body += piece
        if len(body) > bytes_max:
            raise DocumentError(f"more than the {bytes_max:,} bytes allowed")
    return bytes(body)
