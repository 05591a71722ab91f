"""Who asks: keys known by their hashes, each with its token bucket."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence

from .buckets import Bucket, take
from .config import KeyConfig
from .errors import GatewayError

__all__ = ["ANONYMOUS", "Key", "Keys", "new_key"]

ANONYMOUS = "anonymous"
_ALGORITHM = "sha256"


class Key:
    """A key as requests meet it: its configuration and its bucket."""

    __slots__ = ("_bucket", "config", "digest", "name")

    def __init__(self, config: KeyConfig) -> None:
        self.config, self.name = config, config.name
        self.digest = bytes.fromhex(config.sha256)
        self._bucket = Bucket(config.burst, 0.0)

    def take(self, now: float) -> None:
        """Take a token of the bucket.

        Raises:
            GatewayError: 429, the bucket is empty; it says when it is not.
        """
        self._bucket, wait = take(self._bucket, now, rate=self.config.rate, burst=self.config.burst)
        if wait:
            raise GatewayError(
                429,
                "rate_limit_exceeded",
                f"more than {self.config.rate:g} requests per second with this key; "
                f"try again in {wait:.1f} s",
                retry_after=wait,
            )


class Keys:
    """All keys; with none everyone is served, without a limit (see `allow_no_keys`)."""

    def __init__(self, configs: Sequence[KeyConfig]) -> None:
        self._keys = [Key(config) for config in configs]

    def find(self, authorization: str) -> Key | None:
        """Return the key of an `Authorization` header, or None where everyone is served.

        Each hash is compared, in constant time, whichever fits.

        Raises:
            GatewayError: 401, there is no such key.
        """
        if not self._keys:
            return None
        scheme, _, value = authorization.partition(" ")
        given = hashlib.new(_ALGORITHM, value.strip().encode("utf-8", "surrogateescape")).digest()
        found = None
        for key in self._keys:
            if hmac.compare_digest(given, key.digest):
                found = key
        if found is None or scheme.lower() != "bearer":
            raise GatewayError(
                401,
                "invalid_api_key",
                "expected a valid key in the header Authorization: Bearer KEY, got none",
            )
        return found


def new_key(name: str) -> tuple[str, str]:
    """Return a new key and the lines of TOML that let it in."""
    key = secrets.token_urlsafe(32)
    digest = hashlib.new(_ALGORITHM, key.encode()).hexdigest()
    return key, f'[[keys]]\nname = "{name}"\nsha256 = "{digest}"\n'
