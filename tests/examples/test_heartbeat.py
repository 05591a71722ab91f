"""Loop delay: what is measured and how it is summed up."""

from __future__ import annotations

import asyncio
import threading

import pytest
from ragkit.heartbeat import INTERVAL, Heartbeat, quantile


def test_a_quantile_weighs_a_delay_by_the_time_it_stood_for() -> None:
    late = [0.0] * 98 + [0.49, 0.49]  # 0.98 s of punctual beats, 1.0 s of two late ones
    assert quantile(late, 0.4) == 0.0
    assert quantile(late, 0.6) == 0.49
    assert quantile([0.25], 0.99) == 0.25


async def test_a_loop_that_stands_still_is_seen_even_at_the_end_of_a_phase() -> None:
    heartbeat = Heartbeat()
    with heartbeat.phase("stall"):
        threading.Event().wait(INTERVAL + 0.05)
    (phase,) = heartbeat.phases
    assert phase.name == "stall"
    assert phase.delay_max >= 0.04
    assert phase.delay_p50 == phase.delay_p99 == phase.delay_max
    assert phase.wall >= 0.05


async def test_phases_are_kept_in_order_even_when_one_fails() -> None:
    heartbeat = Heartbeat()
    with pytest.raises(KeyError), heartbeat.phase("first"):
        raise KeyError
    with heartbeat.phase("second"):
        await asyncio.sleep(0)
    assert [phase.name for phase in heartbeat.phases] == ["first", "second"]
    assert all(phase.threads_max >= 1 for phase in heartbeat.phases)
