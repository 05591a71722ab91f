"""Fetching from a real server."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web
from ragkit.errors import DocumentError
from ragkit.fetch import fetch, open_session
from ragkit.values import Raw, Source

from .conftest import Serve


async def get(url: str, **options: int) -> Raw:
    async with open_session() as session:
        source = Source(name="doc", location=url, kind=None, place=url)
        return await fetch(session, source, **options)


def saying(body: bytes, content_type: str, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": content_type})


async def test_a_page_comes_with_its_kind_and_charset(serve: Serve) -> None:
    async def page(request: web.Request) -> web.Response:
        return saying("größer".encode("latin-1"), "text/html; charset=latin-1")

    async with serve({"/page": page}) as url:
        raw = await get(f"{url}/page")
    assert (raw.kind, raw.charset, raw.body) == ("html", "latin-1", b"gr\xf6\xdfer")


async def test_a_redirect_is_followed(serve: Serve) -> None:
    async def old(request: web.Request) -> web.Response:
        raise web.HTTPFound("/new")

    async def new(request: web.Request) -> web.Response:
        return saying(b"# Here", "text/markdown")

    async with serve({"/old": old, "/new": new}) as url:
        assert (await get(f"{url}/old")).kind == "markdown"


@pytest.mark.parametrize(
    ("content_type", "status", "reason"),
    [
        ("text/html", 404, "the server said 404"),
        ("text/html", 503, "the server said 503"),
        ("image/png", 200, r"binary or unknown content \(image/png\)"),
        ("application/pdf", 200, "application/pdf"),
    ],
)
async def test_what_is_no_text_or_not_there_is_refused(
    serve: Serve, content_type: str, status: int, reason: str
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return saying(b"x", content_type, status)

    async with serve({"/": answer}) as url:
        with pytest.raises(DocumentError, match=reason):
            await get(url)


async def test_a_page_beyond_the_limit_is_cut_off(serve: Serve) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 10_000)
        except (ConnectionError, aiohttp.ClientError):
            return response

    async with serve({"/": endless}) as url:
        with pytest.raises(DocumentError, match="more than the 50,000 bytes allowed"):
            await get(url, bytes_max=50_000)


async def test_a_body_that_breaks_off_is_refused(serve: Serve) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain", "Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"only this")
        assert request.transport is not None
        request.transport.close()
        return response

    async with serve({"/": broken}) as url:
        with pytest.raises(DocumentError, match="cannot be fetched"):
            await get(url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/", "http://", "http://[::bad", "http://no-such-host.invalid/"]
)
async def test_an_address_where_nobody_answers_is_refused(url: str) -> None:
    with pytest.raises(DocumentError, match="cannot be fetched"):
        await get(url)
