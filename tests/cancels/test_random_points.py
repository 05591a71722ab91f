"""A few points of each job; `python -m tests.cancels.random_points` takes 1,000 of them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from ..conftest import LOOPS
from .jobs import JOBS
from .random_points import cancel_at_random_points

POINTS = 12
NEEDS_AGENTS = pytest.mark.skipif(
    not all(map(find_spec, ("openai", "pydantic"))), reason="needs the extra `agents`"
)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("loop", list(LOOPS))
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=NEEDS_AGENTS if "agent" in each else ()) for each in JOBS]
)
def test_what_is_cancelled_at_random_points_leaves_nothing(name: str, loop: str) -> None:
    cancel_at_random_points(name, POINTS, seed=23, loop=loop)
