"""`print(statistics())`: one screen that says what matters."""

from __future__ import annotations

from typing import Any

from hybridrt import (
    AdaptiveThreadPoolExecutor,
    AnyioStatistics,
    Decision,
    FunctionStatistics,
    GilClass,
    Kind,
    LoopDelay,
    Reason,
    RunningCall,
    ShieldReason,
    ShieldStatistics,
    Statistics,
)

SCREEN_LINES, SCREEN_WIDTH = 40, 110


def some(**changed: Any) -> Statistics:
    """Return the statistics of a pool at rest, but for what is given."""
    at_rest: dict[str, Any] = {
        "policy": "demand", "workers": 0, "idle": 0, "target": 4, "max_workers": 64, "queued": {"waiting": 0},
        "running": (), "submitted": 0, "completed": 0, "failed": 0, "cancelled": 0, "rejected": 0,
        "abandoned": 0, "abandoned_running": 0, "overdrafts": 0, "beta": None, "functions": (),
        "decisions": (decision(0.0, 4, Reason.START),),
    }  # fmt: skip
    return Statistics(**(at_rest | changed))


def decision(at: float, workers: int, reason: Reason) -> Decision:
    return Decision(at=at, workers=workers, previous=4, reason=reason, beta=None, queued=3, running=4)


def function(name: str, **changed: Any) -> FunctionStatistics:
    usual: dict[str, Any] = {
        "kind": Kind.SHORT, "calls": 10, "failed": 0, "wall": 0.2, "cpu": 0.1, "queue_wait": 0.0, "beta": 0.5
    }  # fmt: skip
    return FunctionStatistics(name=name, **(usual | changed))


def running(name: str, age: float) -> RunningCall:
    return RunningCall(name=name, age=age, cpu=0.002, abandoned=False, thread="hybridrt_0")


def everything() -> Statistics:
    """Return the statistics of a pool with a thousand functions and as much going on as there can be."""
    long_name = "some.very.long.package.name.of.a.module.in.it:SomeClass.with_methods.<locals>.inner_function"
    return some(
        workers=64,
        queued=dict.fromkeys(("waiting", "short", "long", "free", "unknown", "resolve", "gated"), 1_234),
        running=tuple(running(long_name, 64.0 - number) for number in range(64)),
        submitted=12_345_678,
        abandoned=12,
        abandoned_running=7,
        overdrafts=9,
        beta=0.5,
        functions=tuple(function(f"{long_name}_{number}") for number in range(1000)),
        decisions=tuple(decision(number, number, Reason.KNEE) for number in range(200)),
        gil_share=0.5,
        gil_delay=0.001,
        governor_error=f"RuntimeError('no thread{'!' * 200}')",
        loop_delay=LoopDelay(p50=0.0002, p99=0.0013, max=0.25, window=60.0),
        background=3,
        anyio=AnyioStatistics(calls=12345, in_flight=3, stopped="it failed " * 20),
        shield=ShieldStatistics(
            interval=0.0001,
            user=0.005,
            target=0.002,
            delay=0.001,
            reason=ShieldReason.TIGHT,
            changes=7,
            collections=12345,
            longest_collection=0.123,
        ),
    )


def test_the_statistics_of_a_busy_program_fit_on_one_screen() -> None:
    lines = str(everything()).splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= SCREEN_WIDTH


def test_those_of_a_new_executor_take_a_few_lines() -> None:
    assert len(str(AdaptiveThreadPoolExecutor(4).statistics()).splitlines()) <= 5


def test_they_name_size_reason_and_counts() -> None:
    text = str(some(workers=5, idle=2, submitted=1234, completed=1200, failed=3, overdrafts=1))
    assert "5 threads of at most 64, 2 idle" in text
    assert "4 waiting calls at once (start)" in text
    for words in ("1,234 submitted", "1,200 completed", "3 failed", "1 overdraft"):
        assert words in text


def test_they_name_the_functions_that_compute_most_and_count_the_others() -> None:
    rows = [function("module:first", kind=Kind.WAITING, gil=GilClass.WAITS, calls=12_345)]
    text = str(some(functions=tuple(rows + [function(f"module:other_{n}") for n in range(20)])))
    (line,) = (line for line in text.splitlines() if "module:first" in line)
    for word in ("waiting", "waits", "12,345"):
        assert word in line
    assert "11 more" in text
    assert "other_19" not in text


def test_they_name_the_oldest_running_calls_and_what_is_queued() -> None:
    calls = tuple(running(f"module:call_{n}", 100.0 - n) for n in range(9))
    text = str(some(running=calls, queued={"waiting": 7, "short": 0}))
    assert "module:call_0" in text
    assert "100 s" in text
    assert "4 more" in text
    assert "waiting 7" in text
    assert "short" not in text


def test_they_say_that_the_governor_stopped_and_how_the_loop_does() -> None:
    text = str(everything())
    assert "RuntimeError('no thread" in text
    assert "p99 1.3 ms" in text
    assert "switch interval: 100 us (tight)" in text


def test_repr_and_dict_have_all_of_it() -> None:
    statistics = everything()
    assert len(statistics.to_dict()["functions"]) == 1000
    assert repr(statistics).count("FunctionStatistics(") == 1000


def test_a_gil_that_was_always_free_has_no_time() -> None:
    lines = str(some(gil_share=0.0)).splitlines()
    assert "GIL: taken at 0 % of the governor's wake-ups" in lines
