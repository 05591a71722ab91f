"""Fixtures of the tests of streams."""

from __future__ import annotations

from ..loop.conftest import timers

__all__ = ["timers"]
