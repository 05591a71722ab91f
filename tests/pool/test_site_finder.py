"""Which running calls are looked at for where they wait."""

from __future__ import annotations

import threading
import time

import pytest

from hybridrt.measure.threads import ThreadProbe
from hybridrt.pool.permits import NONE
from hybridrt.pool.site_finder import SiteFinder
from hybridrt.values import Kind

from .racing import known, open_pool, submit
from .support import DEADLINE


@pytest.mark.parametrize("lacks_core", [False, True])
@pytest.mark.parametrize("kind", [Kind.SHORT, Kind.WAITING])
def test_a_call_that_waits_with_the_permit_of_a_phase_is_asked_where(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, lacks_core: bool
) -> None:
    """It may wait twice, and only one of the places is known; without a permit it keeps nothing back."""
    monkeypatch.setattr(ThreadProbe, "is_runnable", lambda self: lacks_core)
    gate, inner = threading.Lock(), threading.Event()
    gate.acquire()

    def waits_there() -> None:
        inner.set()
        gate.acquire()

    with open_pool() as pool:
        known(pool, waits_there, kind)
        profile = pool.profiles.of(waits_there)
        profile.gated, profile.puzzling = True, False
        finder, sites = SiteFinder(pool.budget.phases), pool.budget.phases
        call = submit(pool, waits_there)
        assert inner.wait(DEADLINE)
        (worker,) = pool.roster.workers
        holds = worker.permit != NONE
        for step in range(200):
            finder.step(step * 2_000_000_000, [pool], steady=True, interval_ns=5_000_000, native=False)
            time.sleep(0.0001)
        places = [site.function for site in sites.statistics().sites]
        gate.release()
        call.result(DEADLINE)
    assert holds == (kind is Kind.SHORT)
    assert places == [waits_there.__qualname__] * (holds and not lacks_core)
    sites.rest()
