"""Calls on the loop: which may, for how long, and what they may rely on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import OrderedDict
from contextvars import ContextVar
from typing import Any

import pytest

from hybridrt import Runtime, offload
from hybridrt.errors import OffloadTimeoutError
from hybridrt.loop import router
from hybridrt.loop.inline import HANDLING_NS, TURN_NS, Turn
from hybridrt.observe.placement import INLINE_MAX_NS
from hybridrt.testing import ManualClock

from ..loop.support import turns
from .support import MS, US, Work, learn, placement, pure

variable: ContextVar[str] = ContextVar("variable", default="nothing")


async def test_a_short_pure_function_moves_to_the_loop_once_it_is_known(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    await learn(short, "abc")
    assert threading.get_ident() not in work.threads
    assert await short("xyz") == "xyz"
    assert work.was_here
    assert placement(short).inline_calls == 1


async def test_a_function_that_is_not_pure_stays_in_threads(clock: ManualClock) -> None:
    work = Work(clock)
    await learn(offload(work), "abc", calls=20)
    assert threading.get_ident() not in work.threads


async def test_a_call_longer_than_allowed_is_never_made_on_the_loop(clock: ManualClock) -> None:
    work = Work(clock, cpu=1.1 * INLINE_MAX_NS / 1e9)
    await learn(pure(work), "abc", calls=20)
    assert threading.get_ident() not in work.threads


async def test_a_call_that_waits_is_never_made_on_the_loop(clock: ManualClock) -> None:
    work = Work(clock, wait=1 * MS)
    await learn(pure(work), "abc", calls=20)
    assert threading.get_ident() not in work.threads


async def test_an_input_larger_than_any_seen_goes_to_a_worker(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    await learn(short, "x" * 100)
    await short("x" * 101)
    assert not work.was_here
    await short("x" * 101)
    assert work.was_here
    await short("x" * 1000)
    assert not work.was_here


@pytest.mark.parametrize("first", [600, 1_700_000_000, 1_700_000_000_000_000_000])
async def test_an_id_or_a_time_stamp_that_grows_from_call_to_call_runs_on_the_loop(
    clock: ManualClock, first: int
) -> None:
    work = Work(clock)
    short = pure(work)
    for number in range(first, first + 100):
        await short(number, "abc")
    assert placement(short).inline_calls == 97
    assert work.was_here


async def test_a_counter_from_zero_runs_on_the_loop_once_each_magnitude_is_known(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    for number in range(1024):
        await short(number)
    in_threads = 1 + 1 + 2 + 8 * 3  # 0, 1, 2 to 3, and three of each magnitude from 4 to 7 up to 512 to 1023
    assert placement(short).inline_calls == 1024 - in_threads


async def test_a_number_of_a_magnitude_not_seen_goes_to_a_worker(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    await learn(short, 100)
    await short(127)
    assert work.was_here
    await short(-100)
    assert work.was_here
    await short(128)
    assert not work.was_here
    await short(10**9)
    assert not work.was_here


async def test_a_number_of_a_new_magnitude_is_seen_beside_a_larger_one(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    await learn(short, 1_700_000_000_000, 100)
    await short(1_700_000_000_001, 101)
    assert work.was_here
    await short(1_700_000_000_002, 1_000_000)
    assert not work.was_here


async def test_each_size_is_learned_by_itself(clock: ManualClock) -> None:
    work = Work(clock, cpu=1 * MS)
    short = pure(work)
    await learn(short, "x" * 1000)
    work.cpu = 5 * US
    await learn(short, "x")
    await short("x")
    assert work.was_here
    await short("x" * 1000)
    assert not work.was_here
    assert {size.size_max: size.where for size in placement(short).sizes} == {1: "inline", 1023: "thread"}


async def test_sizes_that_come_after_all_that_are_told_apart_move_to_the_loop_too(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "_SIZE_CLASSES_MAX", 8)
    monkeypatch.setattr(router, "_BEYOND", 16)
    work = Work(clock)
    short = pure(work)
    await learn(short, "often", calls=200)
    for size in range(8):
        await learn(short, 10 ** (size + 1), calls=4)
    before = placement(short)
    await learn(short, "a size that comes later", calls=40)
    assert work.was_here
    await short("often")
    assert work.was_here
    after = placement(short)
    assert len(after.sizes) <= 9
    assert after.inline_calls > before.inline_calls


@pytest.mark.parametrize("value", [OrderedDict(), object(), memoryview(b"abc")])
async def test_an_input_without_a_known_size_stays_in_threads(clock: ManualClock, value: object) -> None:
    work = Work(clock)
    await learn(pure(work), value, calls=20)
    assert threading.get_ident() not in work.threads


@pytest.mark.parametrize("options", [{"lane": "one at a time"}, {"limit": 1}])
async def test_a_function_with_a_lane_or_a_limit_stays_in_threads(
    clock: ManualClock, options: dict[str, Any]
) -> None:
    work = Work(clock)
    await learn(pure(work, **options), "abc", calls=20)
    assert threading.get_ident() not in work.threads


async def test_a_timeout_of_zero_leaves_no_call_on_the_loop(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    await learn(short, "abc")
    with contextlib.suppress(OffloadTimeoutError):  # a quick worker may have the result by then
        await short.options(timeout=0)("abc")
    assert threading.get_ident() not in work.threads


async def test_what_was_learned_holds_with_other_options(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    await learn(short, "abc")
    await short.options(timeout=5)("abc")
    assert work.was_here


async def test_calls_on_the_loop_share_a_budget_per_turn_and_wait_in_order_for_the_next(
    clock: ManualClock,
) -> None:
    work = Work(clock, cpu=90 * US)
    short = pure(work)
    await learn(short, "abc")
    done: list[int] = []
    spent: list[int] = []

    async def call(number: int) -> None:
        await short("abc")
        done.append(number)

    async def watch() -> None:
        while True:
            spent.append(clock.now_ns)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(call(number) for number in range(100)))
    watching.cancel()
    assert set(work.threads[3:]) == {threading.get_ident()}
    assert done == sorted(done)
    assert max(after - before for before, after in itertools.pairwise(spent)) <= TURN_NS + 100_000


async def test_those_who_waited_for_their_turn_are_not_overtaken() -> None:
    turn = Turn(asyncio.get_running_loop())
    turn.spent_ns = TURN_NS
    waiting = asyncio.ensure_future(turn.wait(TURN_NS))
    await turns(1)
    turn.notice()
    while not waiting.done():
        assert turn.spent_ns >= TURN_NS
        await turns(1)


async def test_a_short_call_does_not_slip_in_before_a_longer_one_that_queues() -> None:
    turn, order = Turn(asyncio.get_running_loop()), list[int]()

    async def wait(number: int, room_ns: int) -> None:
        await turn.wait(room_ns)
        order.append(number)

    rooms = enumerate((TURN_NS - 1, TURN_NS, 1))
    tasks = [asyncio.ensure_future(wait(number, room_ns)) for number, room_ns in rooms]
    turn.notice()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]


async def test_room_that_the_queue_was_granted_is_not_given_away_again() -> None:
    loop = asyncio.get_running_loop()
    turn, count, gone_on = Turn(loop), itertools.count(), list[int]()
    now = 0

    def tick() -> None:
        nonlocal now
        now = next(count)
        loop.call_soon(tick)

    async def wait(room_ns: int) -> None:
        await turn.wait(room_ns)
        gone_on.append(now)

    tick()
    for _ in range(2):
        waiting = asyncio.ensure_future(wait(TURN_NS))
    await turns(1)
    turn._begin()  # grants the second all of the next turn
    await wait(1)
    await waiting
    assert gone_on[1] < gone_on[2]


async def test_what_handling_a_call_takes_counts_for_the_turn(clock: ManualClock) -> None:
    short = pure(Work(clock, cpu=1 * US))
    await learn(short, "abc")
    turned: list[bool] = []
    asyncio.get_running_loop().call_soon(turned.append, True)
    made = 0
    while not turned:
        await short("abc")
        made += 1
    assert made <= TURN_NS // (1_000 + HANDLING_NS) + 2


async def test_a_task_that_only_calls_lets_the_loop_turn(clock: ManualClock) -> None:
    short = pure(Work(clock, cpu=90 * US))
    await learn(short, "abc")
    turned = asyncio.ensure_future(turns(1))
    for _ in range(20):
        await short("abc")
    assert turned.done()


async def test_a_call_cancelled_while_it_waits_for_its_turn_never_runs(clock: ManualClock) -> None:
    work = Work(clock, cpu=90 * US)
    short = pure(work)
    await learn(short, "abc")
    tasks = [asyncio.create_task(short("abc")) for _ in range(40)]
    await turns(1)
    tasks[30].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results.pop(30), asyncio.CancelledError)
    assert results == ["abc"] * 39
    assert len(work.threads) == 3 + 39


async def test_a_call_with_a_timeout_goes_to_a_worker_rather_than_wait_for_its_turn(
    clock: ManualClock,
) -> None:
    work = Work(clock, cpu=90 * US)
    short = pure(work, queue_timeout=60)
    await learn(short, "abc")
    await asyncio.gather(*(short("abc") for _ in range(40)))
    assert len(set(work.threads[3:])) > 1


FORCED = [{"where": "inline"}, {"where": "inline", "pure": True}]


@pytest.mark.parametrize("options", FORCED)
async def test_where_inline_runs_every_call_on_the_loop(clock: ManualClock, options: dict[str, Any]) -> None:
    work = Work(clock, cpu=0.2)
    forced = offload(**options)(work)
    await learn(forced, OrderedDict(), calls=3)
    assert set(work.threads) == {threading.get_ident()}
    told = placement(forced)
    assert (told.inline_calls, told.overruns, told.paused) == (3, 3, 0)


async def test_a_call_on_the_loop_gets_a_copy_of_the_context() -> None:
    def change() -> str:
        before = variable.get()
        variable.set("changed")
        return before

    variable.set("mine")
    assert await offload(where="inline")(change)() == "mine"
    assert variable.get() == "mine"


async def test_an_exception_on_the_loop_arrives_as_it_was_raised() -> None:
    error = KeyError("missing")

    def fail() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        await offload(where="inline")(fail)()
    assert caught.value is error


async def test_stop_iteration_on_the_loop_is_the_cause_of_a_runtime_error() -> None:
    with pytest.raises(RuntimeError) as caught:
        await offload(where="inline")(next)(iter(()))
    assert isinstance(caught.value.__cause__, StopIteration)


async def test_methods_bind_and_run_on_the_loop() -> None:
    class Parser:
        @offload(where="inline")
        def parse(self, text: str) -> tuple[int, int]:
            return len(text), threading.get_ident()

    assert await Parser().parse("abc") == (3, threading.get_ident())


async def test_a_map_over_a_short_function_runs_on_the_loop(clock: ManualClock) -> None:
    work = Work(clock)
    short = pure(work)
    await learn(short, "abc")
    assert await Runtime.current().map(short, ["abc", "ab", "xy"]) == ["abc", "ab", "xy"]
    assert work.threads[3:] == [threading.get_ident()] * 3
