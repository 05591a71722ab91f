"""The client of an agent: the one that it was given, or one that it makes and closes."""

from __future__ import annotations

import asyncio
import os

# These two the client would import at its first question, on the loop, which takes a third of a second.
import anyio._backends._asyncio  # noqa: F401
import openai.resources.chat.completions.completions  # noqa: F401
from openai import AsyncOpenAI, DefaultAioHttpClient

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


class Connection:
    """Gives the client.

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
        self._made: AsyncOpenAI | None = None
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def client(self) -> AsyncOpenAI:
        """Return the client, which is made at the first question."""
        if not isinstance(self._given, str):
            return self._given
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections belong to a loop; those of one that has ended are gone
            self._loop, self._made, self._lock = loop, None, asyncio.Lock()
        async with self._lock:
            if self._made is None:
                self._made = await _open(self._given, self._api_key, self._max_retries)
            return self._made

    async def aclose(self) -> None:
        """Close the client if it was made here; the next question makes another."""
        made, self._made = self._made, None
        if made is not None:
            await made.close()
