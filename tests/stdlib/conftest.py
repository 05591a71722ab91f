"""Fixtures of the conformance tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .support import KINDS, Gate, Kind

Make = Callable[..., ThreadPoolExecutor]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The stdlib's class, then ours under each policy."""
    chosen: Kind = request.param
    return chosen


@pytest.fixture(params=KINDS[1:], ids=lambda kind: kind.name)
def ours(request: pytest.FixtureRequest) -> Kind:
    """Our class alone, under each policy."""
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate that is open when the test ends, however it ends."""
    gate = Gate()
    yield gate
    gate.release()


def _closing(kind: Kind, gate: Gate) -> Iterator[Make]:
    made: list[ThreadPoolExecutor] = []

    def make(*args: Any, **options: Any) -> ThreadPoolExecutor:
        made.append(kind.build(*args, **options))
        return made[-1]

    yield make
    gate.release()
    for executor in made:
        executor.shutdown(wait=True, cancel_futures=True)


@pytest.fixture
def make(kind: Kind, gate: Gate) -> Iterator[Make]:
    """Makes executors of `kind` that are shut down after the test, the test's gate being open."""
    yield from _closing(kind, gate)


@pytest.fixture
def make_ours(ours: Kind, gate: Gate) -> Iterator[Make]:
    """The same for tests of our class alone."""
    yield from _closing(ours, gate)
