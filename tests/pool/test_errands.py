"""Errands: calls that a pool counts as running while none of its threads does."""

from __future__ import annotations

from hybridrt.pool.errand import Errand, begin_errand, finish_errand
from hybridrt.values import Kind

from .support import Stage, make_call, named


def test_a_call_whose_thread_cannot_start_waits_for_the_end_of_an_errand() -> None:
    stage = Stage()
    pool, errand = stage.pool, Errand()
    carried = make_call(pool, named("carried"))
    carried.profile.kind, carried.profile.turn_at = Kind.WAITING, 1 << 60
    assert begin_errand(errand, carried)
    pool.crew.refusals = 1  # type: ignore[attr-defined]
    second = stage.push(named("second"))
    assert pool.queued == 1
    carried.wall_ns = carried.cpu_ns = 1
    assert finish_errand(errand, carried, goes_on=False) is None
    assert stage.running() == [second]
