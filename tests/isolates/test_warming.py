"""Isolates are started ahead of the calls that need them, and import the module of the function."""

from __future__ import annotations

import asyncio
import colorsys
import sys
import threading
import types
from typing import Any

import pytest

from hybridrt import Runtime, offload
from hybridrt.control.placement import Choice
from hybridrt.isolates.isolate import Isolate
from hybridrt.isolates.isolate_pool import IsolatePool, processes
from hybridrt.loop.binding import current_binding
from hybridrt.loop.isolated_call import IsolatedCall, warm_up
from hybridrt.loop.router import Router
from hybridrt.placements import PlacementReason
from hybridrt.pool.limiters import WatchedLimiter
from tests.loop.support import eventually

from . import far
from .support import FarGate, run_isolated


class Idle(Isolate):
    """An isolate that does nothing."""

    def __init__(self) -> None:
        self.is_there = True

    def is_alive(self) -> bool:
        return self.is_there

    def kill(self) -> None: ...

    def ask_to_leave(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def lending() -> Any:
    """Lend two isolates."""
    isolate_pool = IsolatePool(Idle, "idle ones", 2)
    isolate_pool._limiter = WatchedLimiter(2, "idle ones", most=2)
    yield isolate_pool
    isolate_pool.close()


def placed(fn: Any) -> Router:
    """Return what places a function, none of whose calls have been made."""
    return Router(fn, forced=None, on_loop=True)


# ---------------------------------------------------------------------- which one


def test_as_many_are_started_as_calls_may_run_at_once(lending: IsolatePool) -> None:
    leased = [lending.lease_for("json") for _ in range(3)]
    assert [isolate is not None for isolate in leased] == [True, True, False]


def test_an_idle_one_that_has_the_module_is_left_alone(lending: IsolatePool) -> None:
    first, second = lending.lease_for("json"), lending.lease_for("json")
    assert first is not None
    assert second is not None
    first.modules = frozenset({"json"})
    lending.give_back(first)
    lending.give_back(second)
    assert lending.lease_for("json") is second
    assert lending.lease_for("json") is None
    assert lending.lease_for("csv") is first


def test_one_that_ended_meanwhile_is_replaced(lending: IsolatePool) -> None:
    first = lending.lease_for("json")
    assert isinstance(first, Idle)
    lending.give_back(first)
    first.is_there = False
    second = lending.lease_for("json")
    assert second is not None
    assert second is not first


# ---------------------------------------------------------------------- for real


@pytest.mark.usefixtures("kept", "runtime", "one_at_a_time")
async def test_an_isolate_that_was_made_ready_has_imported_the_module_and_is_not_cold() -> None:
    router = placed(colorsys.rgb_to_hsv)
    warm_up(current_binding(), router, "process")
    assert router.warming
    await eventually(lambda: not router.warming)
    (isolate,) = processes.isolates()
    assert ("colorsys" in isolate.modules, isolate.cold) == (True, False)
    assert await run_isolated(far.has_imported, "colorsys")


@pytest.mark.usefixtures("kept", "one_at_a_time")
async def test_where_all_isolates_are_ready_warming_up_has_nothing_to_do_and_does_not_fail(
    runtime: Runtime,
) -> None:
    for fn in (colorsys.rgb_to_hsv, colorsys.hsv_to_rgb):
        router = placed(fn)
        warm_up(current_binding(), router, "process")
        await eventually(lambda router=router: not router.warming)  # type: ignore[misc]
    (row,) = (row for row in runtime.statistics().functions if row.name == "hybridrt:warm_up")
    assert (row.calls, row.failed) == (2, 0)


@pytest.mark.usefixtures("kept", "runtime", "one_at_a_time")
async def test_while_isolates_start_calls_go_on_in_threads(far_gate: FarGate) -> None:
    held = far_gate.push()
    await far_gate.entered()
    router = placed(far.add)
    warm_up(current_binding(), router, "process")
    size_class = router.size_class((1, 0, 0))
    size_class.choice = Choice(where="isolate", reason=PlacementReason.TRIAL)
    assert (router.is_decided(size_class), router.choose(size_class)) == (False, "thread")
    await far_gate.release()
    await held
    await eventually(lambda: not router.warming)
    assert (router.is_decided(size_class), router.choose(size_class)) == (True, "isolate")


@pytest.mark.usefixtures("kept", "runtime", "one_at_a_time")
async def test_a_module_that_cannot_be_imported_there_is_left_to_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = types.ModuleType("only_here")
    exec("def fn() -> None: ...", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    router = placed(module.fn)
    warm_up(current_binding(), router, "process")
    await eventually(lambda: not router.warming)
    assert router.not_portable is None


@pytest.mark.usefixtures("kept", "runtime")
async def test_a_function_that_no_isolate_could_find_starts_none() -> None:
    router = placed(lambda: None)
    warm_up(current_binding(), router, "process")
    assert not router.warming
    assert "lambda" in (router.not_portable or "")


@pytest.mark.usefixtures("runtime")
async def test_where_a_pool_takes_no_more_calls_no_isolate_is_made_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: IsolatedCall) -> None:
        raise RuntimeError("it closes")

    monkeypatch.setattr(IsolatedCall, "go", refuse)
    router = placed(colorsys.rgb_to_hls)
    warm_up(current_binding(), router, "process")
    await eventually(lambda: not router.warming)
    await eventually(lambda: not current_binding().warming)


@pytest.mark.usefixtures("kept", "one_at_a_time")
async def test_a_runtime_that_closes_waits_for_no_isolate_that_starts(far_gate: FarGate) -> None:
    async with Runtime() as runtime:
        held = far_gate.push()
        await far_gate.entered()
        router = placed(far.add)
        warm_up(current_binding(), router, "process")  # waits for the only place
        closing = asyncio.ensure_future(runtime.aclose())
        await eventually(lambda: not router.warming)
        await _release(far_gate)
        await held
        await closing


async def _release(far_gate: FarGate) -> None:
    """Let the call go on, in a thread of the test's own: the runtime takes no more calls."""
    thread = threading.Thread(target=lambda: asyncio.run(far_gate.release()))
    thread.start()
    while thread.is_alive():  # noqa: ASYNC110  # it knows no loop
        await asyncio.sleep(0.001)


@pytest.mark.usefixtures("kept", "one_at_a_time")
async def test_warming_a_function_that_runs_in_isolates_runs_it_there(runtime: Runtime) -> None:
    before = await run_isolated(far.count_calls)
    await runtime.warm(offload(far.count_calls, pure=True, where="isolate", isolation="process"))
    assert await run_isolated(far.count_calls) == before + 3


@pytest.mark.usefixtures("kept", "runtime", "one_at_a_time")
async def test_two_routers_of_one_function_that_warm_up_together_both_come_to_an_end() -> None:
    routers = [placed(colorsys.rgb_to_hsv) for _ in range(2)]
    for router in routers:
        warm_up(current_binding(), router, "process")
    await eventually(lambda: not any(router.warming for router in routers))


def test_a_warm_up_of_a_loop_that_was_closed_is_not_waited_for() -> None:
    router = placed(colorsys.rgb_to_hsv)
    loop = asyncio.new_event_loop()
    router.warming_calls = (loop.create_future(),)
    assert router.warming
    loop.close()
    assert not router.warming
