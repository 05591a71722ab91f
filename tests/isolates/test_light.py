"""Which calls a loop may carry itself: arguments that are light, and functions whose calls are brief."""

from __future__ import annotations

import select
from typing import Any

import pytest

from hybridrt import Runtime, offload
from hybridrt.loop import isolated
from hybridrt.pool.isolates.crossing import Crossing
from hybridrt.pool.isolates.packing import LIGHT, is_light

from . import far
from .support import lighten, push

pytestmark = [
    pytest.mark.usefixtures("kept", "runtime"),
    pytest.mark.skipif(not hasattr(select, "epoll"), reason="loops carry calls on Linux only"),
]


def test_light_is_what_is_small_and_built_in_all_the_way_down() -> None:
    for light in (None, 1.5, "word", b"x" * 3900, {"a": [1, (2, "b")]}, {1, 2}, -(1 << 64)):
        assert is_light((1, light)), light
    text = type("Text", (str,), {})()
    heavy = ["x" * LIGHT, list(range(1000)), object(), [object()], {1: [object()]}, memoryview(b""), text]
    for value in (*heavy, range(3), 1 << 100_000):
        assert not is_light((1, value)), type(value)


def test_a_list_that_holds_itself_is_not_light() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert not is_light((endless,))


def crossing(**changes: Any) -> Crossing:
    known = {
        "wall_ns": 1, "host_cpu_ns": 1, "child_wall_ns": 1, "child_cpu_ns": 1, "bytes_out": 1, "bytes_in": 1,
        "cold": False,
    }  # fmt: skip
    return Crossing(**{**known, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"cold": True},
        {"bytes_in": LIGHT + 1},
        {"child_wall_ns": isolated._BRIEF_NS + 1},
        {"host_cpu_ns": isolated._HANDLING_NS + 1},
    ],
    ids=str,
)
async def test_calls_are_carried_by_the_loop_after_brief_ones_only(
    changes: dict[str, Any],
) -> None:
    line = await lighten(far.add)
    for lost in (None, crossing(**changes)):
        line.came_back(lost)
        for _ in range(isolated._PAUSE + isolated._ENOUGH):
            assert line.replies is None
            line.came_back(crossing())
        assert line.replies is not None


async def test_a_long_call_ends_that_even_if_it_was_not_measured() -> None:
    line = await lighten(far.add)
    line.came_again(isolated._BRIEF_NS)
    assert line.replies is not None
    line.came_again(isolated._BRIEF_NS + 1)
    assert line.replies is None


@pytest.mark.usefixtures("steady")
async def test_one_call_in_eight_is_measured() -> None:
    told = list[Crossing | None]()
    line = await lighten(far.compute)
    for _ in range(2 * isolated._OFTEN):
        await push(far.compute, on_crossing=told.append)
    measured = [crossing for crossing in told if crossing is not None]
    assert (len(told), len(measured)) == (2 * isolated._OFTEN, 2)
    assert measured[-1].host_cpu_ns == line.cpu_ns > 0
    assert all(crossing.child_cpu_ns > 0 for crossing in measured)


@pytest.mark.usefixtures("steady")
async def test_it_comes_to_that_by_itself() -> None:
    calls = list[Any]()
    for _ in range(isolated._ENOUGH + 1):
        calls.append(push(far.echo, "word"))
        assert await calls[-1] == "word"
    assert [call.replies is None for call in calls] == [True, True, True, False]


@pytest.mark.usefixtures("steady")
async def test_all_of_them_are_counted(runtime: Runtime) -> None:
    echo = offload(far.echo, pure=True, where="isolate", isolation="process")
    await echo("warm")
    before = _isolate_calls(runtime)
    for _ in range(20):
        await echo("word")
    assert _isolate_calls(runtime) == before + 20


def _isolate_calls(runtime: Runtime) -> int:
    placements = [row.placement for row in runtime.statistics().functions if row.placement is not None]
    return sum(placement.isolate_calls for placement in placements)


async def test_the_first_calls_are_all_measured_so_that_a_trial_knows_them() -> None:
    line = await lighten(far.add)
    line.came_back(None)
    for _ in range(isolated._PAUSE + isolated._FIRST):
        assert line.is_measured
        line.came_back(crossing())
    line.came_back(crossing())
    assert not line.is_measured
