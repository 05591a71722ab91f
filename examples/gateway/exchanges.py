"""One request and its answer, as the two paths hand it over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

__all__ = ["Exchange", "Outcome"]

Outcome = Literal["answered", "refused", "failed", "cut_off", "client_left"]
"""`refused`: by the gateway or an upstream. `failed`: no upstream answered. `cut_off`: an answer stopped
in the middle. `client_left`: nobody waited for it any more."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """What happened to one request. The hot path fills it in; the background path only reads it.

    Attributes:
        key: Name of the key.
        kept: What was kept of the answer, at most `kept_max` bytes.
        hold, release: Count the bytes kept in, and out when nothing needs them any more.
        size: Bytes of the whole answer.
        digest: Of the bytes that were not kept, with those kept before them; None if all were kept.
    """

    request_id: str
    key: str
    path: str
    body: bytes
    kept_max: int
    hold: Callable[[int], None]
    release: Callable[[int], None]
    model: str = ""
    stream: bool = False
    upstream: str = ""
    attempts: int = 0
    status: int = 0
    outcome: Outcome = "refused"
    event_stream: bool = False
    began: float = field(default_factory=time.monotonic)
    at: float = field(default_factory=time.time)
    ended: float = 0.0
    kept: bytearray = field(default_factory=bytearray)
    size: int = 0
    digest: str | None = None
    _hash: Any = None  # hashlib names no public type

    def keep(self, piece: bytes) -> None:
        """Take note of a piece of the answer."""
        self.size += len(piece)
        if self._hash is None and len(self.kept) + len(piece) <= self.kept_max:
            self.kept += piece
            self.hold(len(piece))
            return
        self._hash = self._hash or sha256(self.kept)
        self._hash.update(piece)

    def done(self) -> None:
        """Let go of the bodies; called once."""
        self.release(len(self.body) + len(self.kept))

    def end(self, outcome: Outcome, status: int) -> None:
        """Take note of the end."""
        self.outcome, self.status, self.ended = outcome, status, time.monotonic()
        if self._hash is not None:
            self.digest = self._hash.hexdigest()
