"""The shapes of hostile requests, drawn by a seed."""

from __future__ import annotations

import enum
import json
import random
from collections.abc import Callable

from .servers import KEY, PROMPT, asking

__all__ = ["BODY", "ENDLESS", "HEAD", "MARK", "SMUGGLED", "WAYS", "Way", "make", "sized"]

ENDLESS, SMUGGLED = "endless", "smuggled"
"""Models: one whose answer never ends, and one that no well-read request asks for."""
MARK = "WRONG-KEY-DO-NOT-SHOW"
HEAD = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n".encode()
BODY = json.dumps(asking()).encode()


class Way(enum.Enum):
    """How a client sends and how it ends."""

    WAITS = "waits"
    HALF_CLOSED = "closes its half"
    CUT = "sends a part and closes its half"
    SLOW = "sends byte by byte"
    ABORTS = "resets"
    LEAVES = "leaves in mid-stream"
    READS_NOTHING = "takes nothing"


WAYS = (*Way, Way.WAITS, Way.WAITS, Way.HALF_CLOSED, Way.HALF_CLOSED)
"""With the usual ones more often."""


def make(dice: random.Random, *, endless: bool = False) -> bytes:
    """Return one request.

    Args:
        dice: What it is drawn by.
        endless: A good one, for the answer that never ends.
    """
    if endless:
        return sized(json.dumps(asking(model=ENDLESS, stream=True)).encode())
    return dice.choice(SHAPES)(dice)


def sized(body: bytes, length: int | str | None = None) -> bytes:
    """Return a request with a body and the length it claims."""
    claimed = len(body) if length is None else length
    return HEAD + f"Content-Length: {claimed}\r\n\r\n".encode() + body


def _hidden() -> bytes:
    """Return a second request, which a reader finds only if it misreads where the first one ends."""
    return sized(json.dumps(asking(model=SMUGGLED)).encode())


def _smuggled(dice: random.Random) -> bytes:
    """Both lengths, or lengths that two readers read differently."""
    hidden = _hidden()
    empty = b"0\r\n\r\n"
    heads = (
        b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(empty + hidden),
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: identity, chunked\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding:\x0bchunked\r\nContent-Length: 5\r\n",
        b"X: y\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\nContent-Length: %d\r\n" % len(empty + hidden),
        b"Content-Length: +5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Content-Length: 5\x00\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length:\r\n 5\r\n",
        b"Content-Length: 5_0\r\n",
    )
    return HEAD + dice.choice(heads) + b"\r\n" + empty + hidden


def _chunked(dice: random.Random) -> bytes:
    """Chunks that are no chunks."""
    size = b"%x" % len(BODY)
    whole = size + b"\r\n" + BODY + b"\r\n"
    chunks = (
        b"zz\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"f" * 18 + b"\r\n",
        b"5\r\nhel",
        b"5\r\nhello world\r\n0\r\n\r\n",
        b"5;" + b"x" * 40_000 + b"\r\nhello\r\n0\r\n\r\n",
        whole + b"0\r\nTrailer: " + b"x" * 40_000 + b"\r\n\r\n",
        whole + b"0\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        whole + b"0\r\nbad trailer\r\n\r\n",
        whole,
        size + b"\n" + BODY + b"\n0\n\n",
        b"1\r\nx\r\n" * 5000,
        b"50000\r\n" + b"x" * 0x50000 + b"\r\n0\r\n\r\n",
    )
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + dice.choice(chunks)


def _malformed(dice: random.Random) -> bytes:
    """What is no HTTP, or has a head that is too large."""
    wrong = HEAD.replace(KEY.encode(), MARK.encode())
    return dice.choice(
        (
            b"",
            b"\r\n" * 50,
            b"GET",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: x\r\n\r\n",
            HEAD.replace(b"Bearer", b"Bearer\x01") + b"\r\n",
            HEAD.replace(b"POST", KEY.encode()) + b"\r\n",
            HEAD.replace(b"/v1", b"/" + KEY.encode() + b"\xff") + b"\r\n",
            wrong + b"Content-Length: 2\r\n\r\n{}",
            wrong.replace(b"Bearer", b"Basic") + b"Content-Length: 2\r\n\r\n{}",
            HEAD + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
            HEAD + b"X: y\r\n" * 5000 + b"\r\n",
            HEAD + b": empty\r\n\r\n",
            HEAD + b"X: \xff\xfe\r\nContent-Length: 2\r\n\r\n{}",
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
            HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            HEAD + b"Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n",
            HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
        )
    )


def _method(dice: random.Random) -> bytes:
    """Methods and paths that are not served."""
    method = dice.choice(
        (b"GET", b"PUT", b"DELETE", b"TRACE", b"OPTIONS", b"PATCH", b"HEAD", b"CONNECT", b"BREW")
    )
    path = dice.choice(
        (b"/v1/chat/completions", b"*", b"/../../etc/passwd", b"http://x/v1/models", b"/%ff%00")
    )
    return (
        method + b" " + path + HEAD.removeprefix(b"POST /v1/chat/completions") + b"Content-Length: 0\r\n\r\n"
    )


def _oversized(dice: random.Random) -> bytes:
    """Bodies that are too large, too deep or hold too much."""
    return dice.choice(
        (
            sized(b"x" * 10, 10**12),
            sized(b"x" * 10, "9" * 400),
            sized(b"x" * 400_000),
            sized(b"[" * 200_000),
            sized(b'{"a":' * 40_000),
            sized(b"[" + b"1," * 100_000 + b"1]"),
            sized(b'{"model": ' + b"9" * 200_000 + b"}"),
            sized(json.dumps(asking(model=PROMPT * 5000)).encode()),
            sized(json.dumps(asking(tools=[{}] * 10_000)).encode()),
        )
    )


def _json(dice: random.Random) -> bytes:
    """Bodies that are no JSON, no UTF-8, or not what is asked for."""
    prompt = json.dumps(PROMPT).encode()
    return sized(
        dice.choice(
            (
                b"",
                b"\xff" * 100,
                b"\xef\xbb\xbf" + BODY,
                BODY.decode().encode("utf-16"),
                BODY.replace(b"small", b"sm\xc3\x28ll"),
                BODY.replace(b"small", b"sm\\ud800ll"),
                BODY.replace(b"small", b"sm\x00ll"),
                BODY[:-3],
                BODY + b"}",
                b'{"model": NaN, "messages": Infinity}',
                b'{"model": "small", "model": 5, "messages": []}',
                b'{"model": "small", "messages": ' + prompt + b"}",
                b'{"model": {"a": ' + prompt + b'}, "messages": []}',
                b'{"model": "small", "messages": [' + prompt + b"]}",
                b'{"model": "small", "messages": [{"role": 1, "content": 1e999}], "stream": "yes"}',
                b"[" + prompt + b"]",
                prompt,
                b"null",
                b"-",
            )
        )
    )


def _length(dice: random.Random) -> bytes:
    """A body that is shorter or longer than it claims, and requests in a row."""
    return dice.choice(
        (
            sized(BODY, len(BODY) + 10),
            sized(BODY, 5) + b"garbage",
            sized(BODY) + b"garbage\r\n\r\n",
            sized(BODY) * 40,
            sized(b"{}") * 200,
            HEAD + b"\r\n",
        )
    )


def _mutated(dice: random.Random) -> bytes:
    """Return a good request of which some bytes are others, cut anywhere."""
    wrong = bytearray(sized(BODY))
    for _ in range(dice.randrange(1, 6)):
        wrong[dice.randrange(len(wrong))] = dice.randrange(256)
    return bytes(wrong[: dice.randrange(1, len(wrong) + 1)])


SHAPES: tuple[Callable[[random.Random], bytes], ...] = (
    _smuggled,
    _chunked,
    _malformed,
    _method,
    _oversized,
    _json,
    _length,
    _mutated,
)
