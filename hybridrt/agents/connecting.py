"""The client of an agent: the one that it was given, or one that it makes and closes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

# These two the client would import at its first question, on the loop, which takes a third of a second.
import anyio._backends._asyncio  # noqa: F401
import openai.resources.chat.completions.completions  # noqa: F401
from openai import AsyncOpenAI, DefaultAioHttpClient

from hybridrt.loop.completions import forget_idle
from hybridrt.offload import offload

__all__ = ["Connection"]


@offload
def _open(base_url: str, api_key: str | None, max_retries: int) -> AsyncOpenAI:
    """Make a client; off the loop, because it reads the certificates that it trusts."""
    return AsyncOpenAI(
        base_url=base_url,
        api_key=api_key or os.environ.get("OPENAI_API_KEY") or "none",
        max_retries=max_retries,
        http_client=DefaultAioHttpClient(),
    )


async def _hold(base_url: str, api_key: str | None, max_retries: int) -> AsyncGenerator[AsyncOpenAI, None]:
    """Yield a client and close it when this is closed: by its owner, with the loop, or as garbage."""
    client = await _open(base_url, api_key, max_retries)
    try:
        yield client
    finally:
        await client.close()


@dataclass(slots=True)
class _Made:
    """The client of one loop, made at its first question; `lock` keeps others from making it too."""

    holder: AsyncGenerator[AsyncOpenAI, None] | None = None
    client: AsyncOpenAI | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Connection:
    """Gives the client; connections belong to a loop, so each loop has one of its own.

    Args:
        client: The client, which stays its owner's; or the address to make one for, up to `/v1`.
        api_key: For an address. None: what `OPENAI_API_KEY` in the environment says.
        max_retries: For an address: tries after the first of a request that got no answer, 408, 409, 429
            or 5xx.
    """

    def __init__(self, client: AsyncOpenAI | str, api_key: str | None, max_retries: int) -> None:
        if isinstance(client, str) and not client.startswith(("http://", "https://")):
            raise ValueError(
                "expected the address of an OpenAI-compatible server, as http://127.0.0.1:8000/v1, "
                f"got {client!r}"
            )
        if not isinstance(client, (str, AsyncOpenAI)):
            raise TypeError(f"client must be an openai.AsyncOpenAI or an address up to /v1, got {client!r}")
        self._given = client
        self._api_key = api_key
        self._max_retries = max_retries
        self._made: dict[asyncio.AbstractEventLoop, _Made] = {}

    async def client(self) -> AsyncOpenAI:
        """Return the client of this loop, which is made at the first question."""
        if not isinstance(self._given, str):
            return self._given
        loop = asyncio.get_running_loop()
        made = self._made.get(loop)
        if made is None:
            forget_idle(self._made, lambda _: False)
            made = self._made[loop] = _Made()
        async with made.lock:
            if made.client is None:
                made.holder = _hold(self._given, self._api_key, self._max_retries)
                made.client = await anext(made.holder)
            return made.client

    async def aclose(self) -> None:
        """Close the client of this loop if it was made here; the next question makes another."""
        made = self._made.pop(asyncio.get_running_loop(), None)
        if made is not None:
            async with made.lock:
                if made.holder is not None:
                    await made.holder.aclose()
