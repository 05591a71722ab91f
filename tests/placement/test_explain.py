"""`explain` and `statistics()` say where a function runs, why, and what it would cost elsewhere."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, GilClass, Runtime, explain, explanation, offload
from hybridrt.control.placement import TRIALS
from hybridrt.executor.budget import shared
from hybridrt.isolates.isolate_pool import processes
from hybridrt.loop.isolated_call import _profile
from hybridrt.measure.libraries import Library
from hybridrt.observe.functions import Profile
from hybridrt.placements import Placement, PlacementReason
from hybridrt.testing import ManualClock

from .isolates import Isolates, show_holding
from .support import MS, US, Work, learn, placement, pure, stop_time


@pytest.fixture
async def clock() -> AsyncIterator[ManualClock]:
    async with Runtime(govern_anyio=False):
        yield stop_time()


def seen(
    fn: object, *, wall: float, cpu: float, calls: int = 40, gil: float | None = None, core: float = 0.0
) -> Profile:
    """Let the running loop's pool have seen calls of a function, and return what it knows.

    Args:
        fn: The function.
        wall: Seconds a call took.
        cpu: Seconds of them that it computed.
        calls: How many calls.
        gil: Seconds of them that it waited for the GIL; None: it was not asked.
        core: Seconds of them that it was ready and had no core.
    """
    profile = Runtime.current().executor._pool.profiles.of(fn)
    wall_ns, cpu_ns, core_ns = (int(seconds * 1e9) for seconds in (wall, cpu, core))
    for _ in range(calls):
        profile.record(wall_ns, cpu_ns, 0, core_ns, None if gil is None else int(gil * 1e9))
    return profile


async def test_a_function_that_was_never_called_has_no_costs(clock: ManualClock) -> None:
    def never() -> None: ...

    told = explain(offload(never))
    assert (told.calls, told.wall, told.thread, told.isolate) == (0, None, None, None)
    assert told.advice == "No runtime or executor that is still there has seen a call of it."


@pytest.mark.parametrize(
    ("options", "where", "reason"),
    [
        ({"pure": True}, "thread", PlacementReason.LEARNING),
        ({"pure": True, "where": "thread"}, "thread", PlacementReason.FORCED),
        ({"where": "thread"}, "thread", PlacementReason.FORCED),
        ({"where": "inline"}, "inline", PlacementReason.FORCED),
        ({"pure": True, "where": "isolate"}, "isolate", PlacementReason.FORCED),
    ],
)
def test_before_the_first_call_it_says_where_that_will_run(
    options: dict[str, Any], where: str, reason: PlacementReason
) -> None:
    told = explain(offload(**options)(len))
    assert (told.where, told.reason, told.pure) == (where, reason, options.get("pure", False))


@pytest.mark.parametrize("fn", ["json:loads", 5, None])
def test_what_is_no_function_cannot_be_explained(fn: Any) -> None:
    with pytest.raises(TypeError, match=f"explain needs the function itself, got {fn!r}"):
        explain(fn)


def test_a_callable_that_raises_when_it_is_asked_is_explained() -> None:
    class Grumpy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"no {name} here")

        def __call__(self) -> None: ...

    assert explain(Grumpy()).name.endswith("Grumpy")


async def test_a_function_that_holds_the_gil_is_told_to_become_pure(clock: ManualClock) -> None:
    work = Work(clock)
    seen(work, wall=16 * MS, cpu=16 * MS)
    show_holding(work)
    told = explain(offload(work))
    assert told.advice == (
        "It holds the GIL 100 % of its 16 ms; declare it pure=True to move it out; a thread does not help."
    )
    assert (told.where, told.reason) == ("thread", PlacementReason.NOT_PURE)
    assert told.gil == GilClass.HOLDS
    assert told.gil_share == 1.0
    assert told.thread is not None
    assert told.isolate is not None
    assert told.isolate < told.thread


async def test_the_share_of_the_gil_is_known_at_long_switch_intervals_too(clock: ManualClock) -> None:
    work = Work(clock)
    profile = seen(work, wall=16 * MS, cpu=16 * MS)
    profile.gil.saw_free()
    for _ in range(3):
        profile.gil.saw_taken(4_900_000, 5_000_000)
    told = explain(work)
    assert (told.gil, told.gil_share) == (GilClass.UNKNOWN, 0.75)


async def test_a_function_that_cannot_be_carried_is_not_told_to_become_pure(clock: ManualClock) -> None:
    def inner() -> None: ...

    seen(inner, wall=16 * MS, cpu=16 * MS)
    computes = explain(inner)
    assert computes.advice.startswith("It computes for 16 ms with the GIL, one call at a time. ")
    assert "inner cannot run in another interpreter: " in computes.advice
    assert computes.isolate is None
    show_holding(inner)
    holds = explain(inner).advice
    assert "of its 16 ms, which no thread helps against. " in holds
    assert holds.endswith("; define it at the top level of a module that can be imported")


async def test_calls_of_another_executor_are_explained_where_the_loop_has_seen_none() -> None:
    def elsewhere() -> None: ...

    with AdaptiveThreadPoolExecutor() as executor:
        for _ in range(3):
            executor.submit(elsewhere).result()
        assert explain(elsewhere).calls == 3
        async with Runtime():
            assert explain(elsewhere).calls == 3
            await offload(elsewhere)()
            assert explain(elsewhere).calls == 1


async def test_a_plain_function_is_explained_as_its_offloaded_calls(clock: ManualClock) -> None:
    work = Work(clock)
    seen(work, wall=16 * MS, cpu=16 * MS)
    assert explain(work) == explain(offload(work))


ADVICE = [
    (50 * MS, 1 * MS, "It mostly waits, which threads are for."),
    (
        5 * US,
        5 * US,
        "It takes 5.0 us, hardly more than handing it to a thread; "
        "declare it pure=True to run it on the loop.",
    ),
    (
        20 * MS,
        20 * MS,
        "It computes for 20 ms with the GIL, one call at a time; declare it pure=True to use more cores.",
    ),
    (
        500 * US,
        500 * US,
        "A thread is right: it is too long for the loop, and too short to be carried elsewhere.",
    ),
]


@pytest.mark.parametrize(("wall", "cpu", "advice"), ADVICE)
async def test_the_advice_follows_from_what_calls_cost(
    clock: ManualClock, wall: float, cpu: float, advice: str
) -> None:
    work = Work(clock)
    seen(work, wall=wall, cpu=cpu)
    assert explain(work).advice == advice


async def test_the_work_of_a_call_is_the_same_under_load_as_alone(clock: ManualClock) -> None:
    """It computes for 5 ms and waits for 20; beside others it waits for the GIL and a core as well."""

    def alone() -> None: ...

    def crowded() -> None: ...

    seen(alone, wall=25 * MS, cpu=5 * MS, gil=0.0)
    seen(crowded, wall=250 * MS, cpu=5 * MS, gil=15 * MS, core=210 * MS)
    quiet, loaded = explain(alone), explain(crowded)
    assert (quiet.cpu, quiet.wait) == (pytest.approx(5 * MS), pytest.approx(20 * MS))
    assert (loaded.cpu, loaded.wait) == (quiet.cpu, pytest.approx(quiet.wait))
    assert (loaded.thread, loaded.isolate) == (pytest.approx(quiet.thread), pytest.approx(quiet.isolate))
    assert (quiet.wall, loaded.wall) == (pytest.approx(25 * MS), pytest.approx(250 * MS))
    assert "A call computes for 5.0 ms and waits for 20 ms." in str(loaded)


async def test_a_short_call_that_the_gil_kept_waiting_is_still_short(clock: ManualClock) -> None:
    """The last calls computed for 50 us each; each took 5 ms beside others."""
    work = Work(clock)
    seen(work, wall=5 * MS, cpu=50 * US, gil=4_950 * US)
    assert explain(work).advice.startswith("It takes 50 us, hardly more than handing it to a thread; ")
    assert "A call computes for 50 us." in str(explain(work))


async def test_work_is_that_of_the_last_calls(clock: ManualClock) -> None:
    work = Work(clock)
    seen(work, wall=30 * MS, cpu=30 * MS, gil=0.0)
    seen(work, wall=2 * MS, cpu=2 * MS, gil=0.0, calls=200)
    assert explain(work).cpu == pytest.approx(2 * MS, rel=0.05)


async def test_what_a_call_waits_by_itself_is_unknown_where_waits_cannot_be_told(clock: ManualClock) -> None:
    work = Work(clock)
    seen(work, wall=2 * MS, cpu=1.5 * MS)
    assert explain(work).wait is None


async def test_native_threads_are_named_with_what_one_thread_each_would_gain(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 ms of work 60 are its own, on four cores."""
    libraries = (Library("openblas", 4, "OPENBLAS_NUM_THREADS"), Library("openmp", 4, "OMP_NUM_THREADS"))
    monkeypatch.setattr(explanation, "threaded_libraries", lambda: libraries)
    monkeypatch.setattr(shared, "cores", 4)
    work = Work(clock)
    profile = seen(work, wall=60 * MS, cpu=60 * MS, gil=0.0)
    profile.native.saw(40_000_000, 60_000_000)
    told = explain(work)
    assert told.native == pytest.approx(40 * MS)
    assert "openblas with 4 threads, openmp with 4 threads" in told.advice
    assert "With one thread each (OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1) " in told.advice
    assert "a call computes for up to 100 ms, and 4 at once have a core each, up to 2.4 times" in told.advice
    assert "A call computes for 60 ms; native threads compute for 40 ms more." in str(told)


async def test_native_threads_without_a_name_are_seen_by_their_cpu_time(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "threaded_libraries", lambda: ())
    work = Work(clock)
    seen(work, wall=60 * MS, cpu=60 * MS, gil=0.0).native.saw(60_000_000, 60_000_000)
    assert explain(work).advice.startswith("Threads of native libraries (BLAS or OpenMP, as a rule) compute ")


async def test_of_a_function_without_native_threads_none_are_told(clock: ManualClock) -> None:
    work = Work(clock)
    seen(work, wall=60 * MS, cpu=60 * MS)
    assert (explain(work).native, "native" in str(explain(work))) == (None, False)


async def test_where_thread_of_a_pure_function_is_what_to_leave_out(clock: ManualClock) -> None:
    work = Work(clock)
    seen(work, wall=20 * MS, cpu=20 * MS)
    assert explain(pure(work, where="thread")).advice.endswith("leave where='thread' out to use more cores.")


async def test_a_function_on_the_loop_says_so(clock: ManualClock) -> None:
    fn = pure(Work(clock))
    await learn(fn, "abc", calls=5)
    told = explain(fn)
    assert (told.where, told.reason, told.calls) == ("inline", PlacementReason.SHORT, 5)
    assert str(told).startswith(f"{told.name} runs on the loop (short). It is over before")
    assert "A call costs, with eight callers at once: inline 5.0 us, thread " in str(told)


async def test_calls_with_other_options_count_beside_those_before(clock: ManualClock) -> None:
    fn = pure(Work(clock))
    await learn(fn, "abc", calls=5)
    seen = placement(fn)
    await learn(fn.options(limit=2), "abc", calls=1)
    both = placement(fn)
    assert (both.inline_calls, both.inline_wall) == (seen.inline_calls, seen.inline_wall)
    assert [size.calls for size in both.sizes] == [5, 1]


async def test_a_function_that_is_offloaded_for_each_call_is_counted_by_its_last_ones(
    clock: ManualClock,
) -> None:
    work = Work(clock)
    for _ in range(20):
        await offload(where="inline")(work)()
    assert placement(offload(work)).inline_calls == 8


async def test_of_functions_with_one_name_each_is_explained_by_itself(clock: ManualClock) -> None:
    double, square = (lambda number: 2 * number), (lambda number: number**2)
    seen(double, wall=1 * MS, cpu=1 * MS, calls=3)
    seen(square, wall=2 * MS, cpu=2 * MS, calls=5)
    assert explain(double).name == explain(square).name
    assert (explain(double).calls, explain(square).calls) == (3, 5)


async def test_a_function_whose_calls_never_left_the_loop_has_a_row(clock: ManualClock) -> None:
    fn = offload(where="inline")(Work(clock, cpu=300 * US))
    await learn(fn, calls=2)
    told = explain(fn)
    assert (told.where, told.reason) == ("inline", PlacementReason.FORCED)
    assert told.wall == pytest.approx(300 * US)
    assert str(told).endswith("2 of its calls stalled the loop by taking longer than they may there.")


async def test_a_function_in_an_isolate_says_why_and_what_a_thread_would_cost(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolates = Isolates(carry=1 * MS, cpu=16 * MS)
    monkeypatch.setattr("hybridrt.loop.isolated_call.isolated_call", isolates)
    monkeypatch.setattr("hybridrt.loop.isolated_call.warm_up", isolates.warm_up)
    work = Work(clock, cpu=16 * MS)
    show_holding(work)
    fn = pure(work)
    await learn(fn, "abc", calls=TRIALS + 5)
    told = explain(fn)
    assert told.where == "isolate"
    assert told.isolate_tried
    assert "runs in an isolate (holds_gil). It holds the GIL until it returns" in str(told)
    assert "(estimated)" not in str(told)


def count_to(count: int) -> Iterator[int]:
    yield from range(count)


def seen_away(fn: Callable[..., Any], calls: int) -> None:
    """Let the running loop's pool have seen steps of a generator function in isolates."""
    profile = _profile(Runtime.current().executor._pool, fn, processes)
    for _ in range(calls):
        profile.record(16_000_000, 1_000_000, 0)


async def test_a_generator_in_isolates_is_explained_by_its_steps_there(clock: ManualClock) -> None:
    fn = offload(count_to, pure=True)
    seen(count_to, wall=16 * MS, cpu=16 * MS, calls=4)
    seen_away(count_to, calls=12)
    told = explain(fn)
    assert (told.where, told.reason, told.calls) == ("isolate", PlacementReason.SHARES_GIL, 16)
    assert told.advice.startswith("It computes with the GIL")
    assert told.cpu == pytest.approx(16 * MS)
    show_holding(count_to)
    assert explain(fn).reason is PlacementReason.HOLDS_GIL
    assert explain(count_to) == explain(fn)


async def test_a_generator_that_must_run_in_isolates_is_explained_by_its_steps_there(
    clock: ManualClock,
) -> None:
    fn = offload(count_to, pure=True, where="isolate")
    Runtime.current().executor._pool.profiles.of(count_to)
    seen_away(count_to, calls=3)
    told = explain(fn)
    assert (told.where, told.reason, told.calls) == ("isolate", PlacementReason.FORCED, 3)
    assert told.advice == "`where`, or HYBRIDRT_WHERE in the environment, says so."


async def test_a_pure_generator_in_threads_says_when_it_leaves_them(clock: ManualClock) -> None:
    seen(count_to, wall=5 * US, cpu=5 * US, calls=300)
    told = explain(offload(count_to, pure=True))
    assert (told.where, told.calls, told.inline) == ("thread", 300, None)
    assert told.advice.startswith("New streams run in isolates once its steps are known to compute with ")


@pytest.mark.parametrize(
    ("cpu", "advice"),
    [
        (5 * US, "A thread is right for steps as short as these."),
        (16 * MS, "It computes for 16 ms with the GIL, one call at a time; declare it pure=True to "),
    ],
)
async def test_a_generator_is_never_told_to_run_on_the_loop(
    clock: ManualClock, cpu: float, advice: str
) -> None:
    seen(count_to, wall=cpu, cpu=cpu)
    assert explain(offload(count_to)).advice.startswith(advice)


async def test_a_generator_that_runs_on_the_loop_says_that_it_was_told_to(clock: ManualClock) -> None:
    fn = offload(count_to, where="inline")
    assert [number async for number in fn(3)] == [0, 1, 2]
    told = explain(fn)
    assert (told.where, told.reason) == ("inline", PlacementReason.FORCED)
    assert told.advice == "`where`, or HYBRIDRT_WHERE in the environment, says so."


async def test_a_function_that_cannot_be_carried_says_why(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolates = Isolates(carry=1 * MS, cpu=16 * MS)
    isolates.refuses = "it is a lambda"
    monkeypatch.setattr("hybridrt.loop.isolated_call.isolated_call", isolates)
    monkeypatch.setattr("hybridrt.loop.isolated_call.warm_up", isolates.warm_up)
    work = Work(clock, cpu=16 * MS)
    show_holding(work)
    fn = pure(work)
    await learn(fn, "abc", calls=8)
    assert explain(fn).advice == "It cannot be carried elsewhere: it is a lambda"


async def test_where_carrying_gains_too_little_to_move_it_is_not_said_to_cost_more(
    clock: ManualClock,
) -> None:
    fn = pure(Work(clock, cpu=170 * US))
    await learn(fn, "abc", calls=100)
    told = explain(fn)
    assert told.reason is PlacementReason.CARRYING
    assert told.isolate is not None
    assert told.thread is not None
    assert told.isolate < told.thread or shared.cores == 1
    assert told.advice == "Carrying its arguments and result elsewhere gains little or nothing."


async def test_the_statistics_with_placements_become_json(clock: ManualClock) -> None:
    fn = pure(Work(clock))
    await learn(fn, "abc", calls=5)
    rows = json.loads(json.dumps(Runtime.current().statistics().to_dict()))["functions"]
    where: list[Placement] = [row["placement"]["sizes"][0]["where"] for row in rows if row["placement"]]
    assert where == ["inline"]
    assert placement(fn).sizes[0].calls == 5


def test_without_a_loop_the_executor_that_has_seen_most_calls_is_asked() -> None:
    def double(number: int) -> int:
        return 2 * number

    with AdaptiveThreadPoolExecutor() as rarely, AdaptiveThreadPoolExecutor() as often:
        assert rarely.submit(double, 1).result() == 2
        assert list(often.map(double, range(3))) == [0, 2, 4]
    assert explain(double).calls == 3


def call_once_in_a_runtime(double: Any) -> None:
    async def main() -> None:
        async with Runtime():
            assert await double(4) == 8

    asyncio.run(main())
    gc.collect()


def test_calls_on_the_loop_are_explained_after_its_runtime_has_closed() -> None:
    @offload(where="inline")
    def double(number: int) -> int:
        return 2 * number

    call_once_in_a_runtime(double)
    told = explain(double)
    assert (told.calls, told.where) == (1, "inline")
    assert told.advice == "`where`, or HYBRIDRT_WHERE in the environment, says so."


def test_calls_that_no_runtime_knows_any_more_are_not_denied() -> None:
    @offload
    def double(number: int) -> int:
        return 2 * number

    call_once_in_a_runtime(double)
    assert explain(double).advice == "No runtime or executor that is still there has seen a call of it."


def test_a_function_is_explained_after_its_loop_has_gone() -> None:
    def double(number: int) -> int:
        return 2 * number

    assert asyncio.run(offload(double)(4)) == 8
    assert explain(double).calls == 1


async def awaited() -> None: ...


async def yielded() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("fn", [awaited, yielded])
def test_an_asynchronous_function_is_refused_with_what_to_ask_for(fn: Any) -> None:
    with pytest.raises(TypeError, match=r"got <function .* runs on the loop; ask for a computing function"):
        explain(fn)
