"""What the gateway says when it does not forward: the errors, and their form in the protocol."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["ConfigError", "GatewayError"]


class ConfigError(ValueError):
    """The configuration cannot be used; the text says where and what to do."""


class GatewayError(Exception):
    """An answer of the gateway's own. Its text never holds a key or a part of a prompt.

    Args:
        status: HTTP status.
        code: What programs compare.
        message: For people: expected, got, remedy.
        retry_after: Seconds after which a new attempt makes sense; None says nothing.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after

    @property
    def body(self) -> dict[str, Any]:
        """The error as the protocol has it."""
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "gateway_error"
        return {"error": {"message": self.message, "type": kind, "param": None, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """The headers that go with it."""
        if self.retry_after is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_after)))}
