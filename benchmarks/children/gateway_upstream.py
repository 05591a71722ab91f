"""Grandchild: an upstream that answers chat completions, streamed or not, after some milliseconds.

As little work per request as can be: it shares the machine with what is measured. Prints its port, and ends
when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

__all__ = ["main"]

DELAY = 0.005
"""Seconds from a whole request to the first byte of its answer."""
_WORDS = ("The ", "quick ", "brown ", "fox ", "jumps ", "over ", "the ", "lazy ", "dog.")
_HEAD = {"id": "chatcmpl-1", "created": 0, "model": "small"}


def _whole() -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "".join(_WORDS)},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    body = json.dumps({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


def _events() -> list[bytes]:
    deltas: list[tuple[dict[str, str], str | None]] = [({"content": word}, None) for word in _WORDS] + [
        ({}, "stop")
    ]
    events = [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"]
    for delta, finish in deltas:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        value = {**_HEAD, "object": "chat.completion.chunk", "choices": choices}
        events.append(_chunk(b"data: " + json.dumps(value).encode() + b"\n\n"))
    return [*events, _chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"]


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


_WHOLE, _EVENTS = _whole(), _events()


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._held = bytearray()
        self._due = 0

    def data_received(self, data: bytes) -> None:
        self._held += data
        if not self._due:
            at = self._held.find(b"\r\n\r\n")
            if at < 0:
                return
            self._due = at + 4 + _length(bytes(self._held[:at]))
        if len(self._held) >= self._due:
            streams = b'"stream": true' in self._held[-64:] or b'"stream":true' in self._held
            del self._held[: self._due]
            self._due = 0
            self._loop.call_later(DELAY, self._answer, 0 if streams else None)

    def _answer(self, event: int | None) -> None:
        if self._transport.is_closing():
            return
        if event is None:
            self._transport.write(_WHOLE)
            return
        self._transport.write(_EVENTS[event])
        if event + 1 < len(_EVENTS):
            self._loop.call_soon(self._answer, event + 1)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def main() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=1024)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(main())
