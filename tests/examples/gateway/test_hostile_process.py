"""Some hostile requests to a process; `hostile_requests`, run as a program, sends 2,000 of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .hostile_requests import GROWTH_MAX, attack


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hostile_requests_leave_it_serving_with_bounded_memory_and_show_no_secret(tmp_path: Path) -> None:
    found = asyncio.run(attack(300, seed=24, folder=tmp_path))
    assert found.left
    assert found.growth <= GROWTH_MAX
