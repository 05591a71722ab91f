"""The token bucket of a key, as a pure function: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bucket", "take"]


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many requests a key may make at once, and when that was so."""

    tokens: float
    at: float


def take(bucket: Bucket, now: float, *, rate: float, burst: float) -> tuple[Bucket, float]:
    """Take a token; return the next bucket and the seconds to wait, 0.0 where the token was taken.

    Args:
        bucket: As the last call returned it; a new one holds `burst` tokens.
        now: Seconds of a clock that never goes back.
        rate: Tokens that come per second, above 0.
        burst: Tokens that fit in, at least 1.
    """
    tokens = min(burst, bucket.tokens + max(0.0, now - bucket.at) * rate)
    if tokens >= 1.0:
        return Bucket(tokens - 1.0, now), 0.0
    return Bucket(tokens, now), (1.0 - tokens) / rate
