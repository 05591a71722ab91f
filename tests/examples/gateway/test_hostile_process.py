"""Some hostile requests to a process; `hostile_requests`, run as a program, sends 2,000 and bounds memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .hostile_requests import attack


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hostile_requests_leave_it_serving_and_show_no_secret(tmp_path: Path) -> None:
    found = asyncio.run(attack(300, seed=24, folder=tmp_path))
    assert found.left
