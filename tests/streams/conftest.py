"""Fixtures of the tests of streams."""

from __future__ import annotations

from ..loop.conftest import timers
from ..stdlib.conftest import without_gc

__all__ = ["timers", "without_gc"]
