"""A call that holds the GIL for long lets a loop that works go first, for a bounded time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hybridrt.pool import loop_first
from hybridrt.pool.loop_first import MOST_NS, LoopFirst

SLICE_NS = 300_000


class Clocks:
    """Time that passes in slices, in which the loop has computed as the test says."""

    def __init__(self, shares: list[float | None]) -> None:
        self.now_ns = 0
        self.sleeps = 0
        self._shares = shares

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        self.now_ns += SLICE_NS

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def restart(self, native_ids: Iterable[int]) -> None: ...

    def spent(self, native_ids: Iterable[int]) -> float | None:
        share = self._shares.pop(0) if len(self._shares) > 1 else self._shares[0]
        return None if share is None else share * SLICE_NS / 1e9


class Watch:
    """What stands for a loop."""


@pytest.fixture
def watch() -> Watch:
    return Watch()


def give_way(first: LoopFirst, monkeypatch: pytest.MonkeyPatch, *shares: float | None) -> Clocks:
    clocks = Clocks(list(shares))
    monkeypatch.setattr(loop_first, "ThreadClocks", lambda: clocks)
    monkeypatch.setattr(loop_first, "sleep", clocks.sleep)
    monkeypatch.setattr(loop_first, "perf_counter_ns", clocks.perf_counter_ns)
    assert first.give_way() == clocks.now_ns
    return clocks


def test_without_a_loop_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert give_way(LoopFirst(), monkeypatch, 1.0).sleeps == 0


def test_a_loop_that_rests_costs_one_look(monkeypatch: pytest.MonkeyPatch, watch: Watch) -> None:
    first = LoopFirst()
    first.join_locked(watch)
    assert give_way(first, monkeypatch, 0.01).sleeps == 1
    assert first.calls == 0


def test_a_loop_that_works_goes_first(monkeypatch: pytest.MonkeyPatch, watch: Watch) -> None:
    first = LoopFirst()
    first.join_locked(watch)
    assert give_way(first, monkeypatch, 1.0, 0.9, 0.1).sleeps == 3
    assert first.calls == 1


def test_a_loop_that_never_rests_is_waited_for_no_longer_than_the_bound(
    monkeypatch: pytest.MonkeyPatch, watch: Watch
) -> None:
    first = LoopFirst()
    first.join_locked(watch)
    clocks = give_way(first, monkeypatch, 1.0)
    assert MOST_NS <= clocks.now_ns < MOST_NS + SLICE_NS


def test_where_clocks_cannot_be_read_it_does_not_wait(monkeypatch: pytest.MonkeyPatch, watch: Watch) -> None:
    first = LoopFirst()
    first.join_locked(watch)
    assert give_way(first, monkeypatch, None).sleeps == 1


def test_a_loop_that_has_left_is_known_no_more(monkeypatch: pytest.MonkeyPatch, watch: Watch) -> None:
    first = LoopFirst()
    first.join_locked(watch)
    first.leave_locked(watch)
    assert give_way(first, monkeypatch, 1.0).sleeps == 0
