"""What `statistics()` does while it holds the lock that every call needs: it copies, and builds no value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, PlacementStatistics, SizePlacement
from hybridrt.executor import report as report_module
from hybridrt.executor.budget import shared
from hybridrt.loop import router as router_module
from hybridrt.loop import size_class as size_class_module
from hybridrt.observe import functions as functions_module
from hybridrt.observe import gil_class as gil_class_module

from .conftest import Make
from .support import DEADLINE, Meeting

BUILT = [
    (report_module, "Statistics"),
    (report_module, "RunningCall"),
    (functions_module, "FunctionStatistics"),
    (gil_class_module, "GilEvidence"),
]


class Placed:
    """A function's placing that notes whether the lock is held when it is asked."""

    def __init__(self, seen: list[bool]) -> None:
        self._seen = seen

    def statistics(self) -> PlacementStatistics:
        self._seen.append(shared.lock.locked())
        return PlacementStatistics(
            inline_calls=0, inline_wall=0.0, overruns=0, longest_overrun=0.0, paused=0, isolate_calls=0,
            not_portable=None, sizes=(),
        )  # fmt: skip


@pytest.fixture
def busy(make: Make, meeting: Meeting) -> AdaptiveThreadPoolExecutor:
    """Return an executor with two functions, a running call, and no governor that takes the lock."""
    executor = make()
    executor.submit(len, "ab").result(DEADLINE)
    executor.submit(meeting)
    meeting.wait_for(1)
    shared.governor.stop()
    return executor


def test_no_value_is_built_while_the_lock_is_held(
    busy: AdaptiveThreadPoolExecutor, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: dict[str, list[bool]] = {}

    def watch(name: str, kind: Callable[..., Any]) -> Callable[..., Any]:
        def build(**values: Any) -> Any:
            built.setdefault(name, []).append(shared.lock.locked())
            return kind(**values)

        return build

    for module, name in BUILT:
        monkeypatch.setattr(module, name, watch(name, getattr(module, name)))
    statistics = busy.statistics()
    meeting.end()
    assert len(statistics.running) == 1
    assert built == {
        "Statistics": [False],
        "RunningCall": [False],
        "FunctionStatistics": [False],
        "GilEvidence": [False],
    }


def test_where_calls_run_is_asked_without_the_lock(
    busy: AdaptiveThreadPoolExecutor, meeting: Meeting
) -> None:
    seen: list[bool] = []
    pool = busy._pool
    for fn in (len, max):  # one that has run in a thread, and one that has only run on the loop
        profile = pool.profiles.of(fn)
        pool.placed[profile.key] = profile, (Placed(seen),)
    rows = {row.name.rpartition(":")[2]: row for row in busy.statistics().functions}
    meeting.end()
    assert seen == [False, False]
    assert [(rows[name].calls, rows[name].placement is not None) for name in ("len", "max")] == [
        (1, True),
        (0, True),
    ]


def test_where_calls_of_a_size_run_is_told_without_the_lock_of_the_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router, held = router_module.Router(len, forced=None, on_loop=True), list[bool]()
    router.size_class((3, 0, 0))

    def build(kind: Callable[..., Any]) -> Callable[..., Any]:
        def note(**values: Any) -> Any:
            held.append(router._lock.locked())
            return kind(**values)

        return note

    monkeypatch.setattr(size_class_module, "SizePlacement", build(SizePlacement))
    monkeypatch.setattr(router_module, "PlacementStatistics", build(PlacementStatistics))
    assert len(router.statistics().sizes) == 1
    assert held == [False, False]
