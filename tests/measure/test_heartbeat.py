"""The heartbeat: a timer on the loop that tells how late it fires."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from hybridrt.measure.heartbeat import Heartbeat


class Beats:
    """Collects beats; `seen` is set at each."""

    def __init__(self) -> None:
        self.beats: list[tuple[float, float, float]] = []
        self.seen = asyncio.Event()
        self.busy = True

    def record(self, at: float, late: float, period: float) -> None:
        self.beats.append((at, late, period))
        self.seen.set()

    async def next(self) -> tuple[float, float, float]:
        self.seen.clear()
        await self.seen.wait()
        return self.beats[-1]


def heartbeat(beats: Beats, **periods: Any) -> Heartbeat:
    return Heartbeat(asyncio.get_running_loop(), beats.record, lambda: beats.busy, **periods)


async def test_it_beats_until_it_is_stopped() -> None:
    beats = Beats()
    one = heartbeat(beats, period=0.001)
    one.start()
    first, second = await beats.next(), await beats.next()
    one.stop()
    one.stop()
    assert second[0] > first[0]
    assert first[1] >= 0.0
    assert first[2] == 0.001
    count = len(beats.beats)
    await asyncio.sleep(0.01)
    assert len(beats.beats) == count


async def test_a_blocked_loop_is_late_by_at_least_what_is_left_of_the_block() -> None:
    beats = Beats()
    one = heartbeat(beats, period=0.001)
    one.start()
    time.sleep(0.02)  # noqa: ASYNC251  # this is the stall that is measured
    _, late, _ = await beats.next()
    one.stop()
    assert late >= 0.018


async def test_an_idle_heart_beats_at_the_long_period_and_quickens_when_told() -> None:
    beats = Beats()
    beats.busy = False
    one = heartbeat(beats, period=0.001, idle_period=3600.0)
    one.start()
    beats.busy = True
    one.quicken()
    _, _, period = await beats.next()
    one.stop()
    assert period == 0.001


async def test_quickening_a_stopped_or_quick_heart_changes_nothing() -> None:
    beats = Beats()
    one = heartbeat(beats, period=0.001)
    one.quicken()
    assert beats.beats == []
    one.start()
    one.quicken()
    await beats.next()
    one.stop()
