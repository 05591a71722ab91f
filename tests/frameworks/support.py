"""What a user's function sees from the inside, and how frameworks are imported."""

from __future__ import annotations

import contextvars
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor

__all__ = ["FOREIGN_WARNINGS", "PREFIX", "Sight", "framework"]

FOREIGN_WARNINGS = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""For the tests of a framework, which may use what a newer Python deprecates."""
PREFIX = "tools"
_request = contextvars.ContextVar("request", default="unset")


@dataclass(slots=True)
class Sight:
    """Where a user's function ran and in whose context, one entry for each call."""

    threads: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Called by the task that runs the framework."""
        _request.set("of the task")

    def look(self) -> None:
        """Called by the user's function."""
        self.threads.append(threading.current_thread().name.partition("_")[0])
        self.requests.append(_request.get())

    def assert_offloaded(
        self,
        executor: AdaptiveThreadPoolExecutor,
        function: Callable[..., Any],
        calls: int = 1,
        prefix: str = PREFIX,
    ) -> None:
        """Hold that `function` ran on our threads, in the task's context, and was booked under its name."""
        assert (self.threads, self.requests) == ([prefix] * calls, ["of the task"] * calls)
        booked = {profile.name: profile.calls for profile in executor.statistics().functions}
        assert booked.get(f"{function.__module__}:{function.__qualname__}") == calls, booked


def framework(name: str) -> Any:
    """Import a framework, or skip the tests of this file; what it warns of is its own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason="needs the extra `frameworks`")
