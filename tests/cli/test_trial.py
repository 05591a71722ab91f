"""`hybridrt.trial`: what it measures, what it refuses, and how it reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

import hybridrt
from hybridrt import NotPortableError, Trial, TrialRow, trial
from hybridrt.placements import time_text
from hybridrt.trial import measurement
from hybridrt.trial.measurement import SECONDS, Plan, measure
from hybridrt.trial.progress import ProgressLine
from hybridrt.trial.values import CROWD
from hybridrt.trial.watch import GilWatch
from hybridrt.values import LoopDelay
from tests.cli import functions


def count_up(end: int) -> Iterator[int]:
    yield from range(end)


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Look at the idle loop for a moment only, and forget earlier calls."""
    monkeypatch.setattr(measurement, "IDLE_SECONDS", 0.01)
    functions.calls.clear()
    yield
    functions.calls.clear()


@pytest.mark.slow
def test_a_function_is_measured_in_every_placement() -> None:
    found = trial(json.loads, "[1, 2]", calls=2)
    assert found.function == "json:loads"
    assert [row.where for row in found.rows] == ["inline", "thread", "isolate"]
    for row in found.rows:
        assert row.problem is None
        assert row.calls == 2
        assert row.time is not None
        assert row.rate is not None
        assert row.time > 0 < row.rate
    assert str(found).endswith(f"\n\n{found.verdict}")


@pytest.mark.slow
def test_a_trial_passes_the_arguments_on() -> None:
    trial(functions.note, "x", n=1, calls=1)
    assert functions.calls
    assert all(call == ("x", {"n": 1}) for call in functions.calls)


@pytest.mark.slow
def test_an_offloaded_function_is_tried_without_what_would_hold_its_calls_up() -> None:
    with_options = hybridrt.offload(functions.note, lane="one", limit=1, timeout=0, abandon_on_cancel=True)
    assert [row.problem for row in trial(with_options, calls=1).rows[:2]] == [None, None]


def test_a_function_that_cannot_be_carried_is_tried_in_the_other_placements() -> None:
    inline, thread, isolate = trial(lambda: 7, calls=1).rows
    assert inline.problem is thread.problem is None
    assert isolate.problem is not None
    assert isolate.problem.startswith("not portable: ")


def test_what_the_first_call_raises_is_raised_and_nothing_more_is_tried() -> None:
    with pytest.raises(LookupError, match="nothing was found"):
        trial(functions.fail, 3)
    assert functions.calls == [3]


@pytest.mark.parametrize("kind", [LookupError, NotImplementedError, NotPortableError])
def test_what_a_later_call_on_the_loop_raises_is_raised_too(kind: type[Exception]) -> None:
    def fail_later() -> None:
        functions.calls.append(None)
        if len(functions.calls) > 2:
            raise kind("no more")

    with pytest.raises(kind, match="no more"):
        trial(fail_later, calls=4)


def test_a_slow_first_call_does_not_keep_the_other_isolates_from_starting_before_eight_at_once() -> None:
    calls_before: dict[str, int] = {}

    async def call() -> None:
        functions.calls.append(None)

    def say(stage: str) -> None:
        calls_before[stage] = len(functions.calls)

    row = asyncio.run(measure("isolate", call, Plan(calls=3, say=say), first=2 * SECONDS))
    assert row.problem is None
    assert calls_before[f"isolate: {CROWD} at once"] == 3 + CROWD


def test_what_a_thread_cannot_run_is_told_in_its_row() -> None:
    def refuse() -> None:
        asyncio.get_running_loop()

    def only_on_a_loop_or_before() -> None:
        functions.calls.append(None)
        if len(functions.calls) > 1:
            refuse()

    row = trial(only_on_a_loop_or_before, calls=1).rows[1]
    assert row == TrialRow(where="thread", problem="raised RuntimeError: no running event loop")


@pytest.mark.slow
@pytest.mark.blocks_the_loop  # the trial's own, where it tries the function inline
async def test_a_running_loop_is_told_to_use_a_thread() -> None:
    with pytest.raises(RuntimeError, match=r"await asyncio\.to_thread\(hybridrt\.trial, fn, \.\.\.\)"):
        trial(functions.note)
    assert not functions.calls
    found = await asyncio.to_thread(trial, functions.note, calls=1)
    assert found.rows[0].calls == 1


@pytest.mark.parametrize(
    ("calls", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), (2.0, TypeError)]
)
def test_a_wrong_number_of_calls_is_refused(calls: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"calls .* got"):
        trial(functions.note, calls=calls)
    assert not functions.calls


@pytest.mark.parametrize("fn", [None, "json:loads"])
def test_what_is_no_function_is_refused(fn: Any) -> None:
    with pytest.raises(TypeError, match=f"needs a synchronous function, got {fn!r}"):
        trial(fn)


@pytest.mark.parametrize("fn", [count_up, hybridrt.offload(count_up)], ids=["plain", "offloaded"])
def test_a_generator_function_is_refused(fn: Any) -> None:
    with pytest.raises(TypeError, match=r"returns once, got the generator function .*:count_up"):
        trial(fn, 3)


def test_a_coroutine_function_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a synchronous function"):
        trial(functions.coroutine)


DELAY = LoopDelay(p50=0.0001, p99=0.002, max=0.016, window=1.0)
FOUND = Trial(
    function="json:loads",
    cpu_share=0.98,
    idle=DELAY,
    rows=(
        TrialRow(
            where="inline", calls=9, time=0.0161, first=0.0204, delay=DELAY, stall=0.974, gil_share=1.0,
            rate=61.4, crowd_delay=DELAY,
        ),
        TrialRow(where="thread", calls=9, time=4.2e-6, first=2.0, rate=12_345.6),
        TrialRow(where="isolate", problem="not portable: it is local"),
    ),
    verdict="Holds the GIL.",
)  # fmt: skip


def test_a_trial_reads_as_a_table_with_a_verdict() -> None:
    assert str(FOUND).splitlines() == [
        "           time per call  first call  delay p50     p99  worst  stall/call   GIL"
        "  8 at once: calls/s  delay p99",
        "idle loop                                100 us  2.0 ms  16 ms",
        "inline             16 ms       20 ms     100 us  2.0 ms  16 ms        0.97  1.00"
        "                  61     2.0 ms",
        "thread            4.2 us       2.0 s          -       -      -           -     -"
        "              12,346          -",
        "isolate",
        "isolate: not portable: it is local",
        "",
        "Holds the GIL.",
    ]


def test_a_trial_can_be_written_as_json() -> None:
    told = json.loads(json.dumps(FOUND.to_dict()))
    assert told["rows"][0]["delay"]["max"] == 0.016
    assert told["rows"][2]["problem"] == "not portable: it is local"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (2.5e-7, "0.25 us"),
        (3.14e-6, "3.1 us"),
        (0.0123, "12 ms"),
        (1.0, "1.0 s"),
        (90.0, "90 s"),
    ],
)
def test_a_time_has_its_unit(seconds: float | None, text: str) -> None:
    assert time_text(seconds) == text


def test_a_look_that_waited_long_weighs_as_much_as_the_wait() -> None:
    watch = GilWatch()
    # Ten calls of 8 ms: one look each that waits 6 ms for the GIL, then four that find it free.
    for call in range(10):
        begin = call * 0.010
        watch._looks.append((begin + 0.001, 0.006, False))
        watch._looks.extend((begin + 0.004 + 0.001 * look, 0.001, True) for look in range(4))
        watch._looks.append((begin + 0.009, 0.001, True))  # between two calls
    calls = [(call * 0.010, call * 0.010 + 0.008) for call in range(10)]
    assert watch.share_taken(calls) == pytest.approx(0.6)
    assert watch.share_taken([(1.0, 2.0)]) is None


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "written"), [(Terminal(), "\r\x1b[Ktrial: inline ...\r\x1b[K"), (StringIO(), ""), (None, None)]
)
def test_progress_is_shown_on_a_terminal_and_wiped_away(
    stream: StringIO | None, written: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    with ProgressLine() as progress:
        progress.say("inline")
    assert stream is None or stream.getvalue() == written
