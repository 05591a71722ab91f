"""An upstream: its places, the queue for them, its breaker, and which one takes a request."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from yarl import URL

from . import breaker
from .breaker import Breaker, Circuit
from .config import UpstreamConfig, serves
from .errors import ConfigError, GatewayError

__all__ = ["Upstream", "choose", "make_upstreams"]


class Upstream:
    """A server that answers. All state belongs to the event loop."""

    def __init__(self, config: UpstreamConfig, key: str) -> None:
        self.config, self.name = config, config.name
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.base = URL(config.url)
        self.running = self.waiting = 0
        self._places = asyncio.Semaphore(config.concurrency)
        self._breaker: Breaker = breaker.CLOSED

    @property
    def circuit(self) -> Circuit:
        """The state of its breaker."""
        return self._breaker.state

    @property
    def full(self) -> bool:
        """All places are taken, and those in the queue too."""
        return self._places.locked() and self.waiting >= self.config.queue_max

    @property
    def load(self) -> float:
        """Requests here, by place; above 1 some wait."""
        return (self.running + self.waiting) / self.config.concurrency

    def may_take(self, now: float) -> bool:
        """Return True if its breaker lets a request through."""
        return breaker.may_admit(self._breaker, now)

    @asynccontextmanager
    async def place(self, deadline: float) -> AsyncIterator[None]:
        """Hold a place, or wait for one until the deadline, in time of the loop.

        Raises:
            GatewayError: 503, none came free in time, or the queue is full.
        """
        if self.full:
            raise GatewayError(
                503, "queue_full", "all places and the queue are taken; try again later", retry_after=1.0
            )
        self.waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            raise GatewayError(
                503, "queue_timeout", "no place came free in time; try again later", retry_after=1.0
            ) from None
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._places.release()

    def admit(self, now: float) -> bool:
        """Tell the breaker that a request goes through now; return False if it may not."""
        if not breaker.may_admit(self._breaker, now):
            return False
        self._breaker = breaker.admit(self._breaker, now, open_seconds=self.config.open_seconds)
        return True

    def begin(self) -> None:
        """Tell the breaker of the first byte of an answer."""
        self._breaker = breaker.began(self._breaker)

    def succeed(self) -> None:
        """Tell the breaker of a whole answer."""
        self._breaker = breaker.succeeded()

    def fail(self, now: float) -> None:
        """Tell the breaker of a failure."""
        self._breaker = breaker.failed(
            self._breaker,
            now,
            failures_max=self.config.failures_max,
            open_seconds=self.config.open_seconds,
        )


def choose(
    upstreams: Sequence[Upstream], model: str, tried: Collection[Upstream], now: float
) -> Upstream | None:
    """Return the upstream with the least load that has the model and was not tried; None for none.

    One whose queue is full comes last, so that the request learns of it only when there is no other.
    """
    able = [
        each
        for each in upstreams
        if each not in tried and serves(each.config.models, model) and each.may_take(now)
    ]
    return min(able, key=lambda each: (each.full, each.load), default=None)


def make_upstreams(configs: Sequence[UpstreamConfig]) -> tuple[Upstream, ...]:
    """Return the upstreams with their keys from the environment.

    Raises:
        ConfigError: A variable is not set.
    """
    made = []
    for config in configs:
        key = os.environ.get(config.key_env, "") if config.key_env else ""
        if config.key_env and not key:
            raise ConfigError(
                f"[[upstreams]] {config.name}: expected a key in the environment variable "
                f"{config.key_env}, got none"
            )
        made.append(Upstream(config, key))
    return tuple(made)
