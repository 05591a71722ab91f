"""What a trial's rows are taken to mean."""

from __future__ import annotations

import pytest

from hybridrt.trial.values import TrialRow
from hybridrt.trial.verdict import judge
from hybridrt.values import LoopDelay, Where

LOCAL = "not portable: it is local"


def row(
    where: Where, time: float, *, stall: float | None, gil: float | None, rate: float, worst: float = 0.001
) -> TrialRow:
    delay = LoopDelay(p50=worst / 4, p99=worst / 2, max=worst, window=1.0)
    return TrialRow(
        where=where, calls=9, time=time, first=time, delay=delay, stall=stall, gil_share=gil, rate=rate,
        crowd_delay=delay,
    )  # fmt: skip


def out(problem: str = LOCAL) -> TrialRow:
    return TrialRow(where="isolate", problem=problem)


def test_a_call_shorter_than_its_hand_over_is_made_where_it_is() -> None:
    inline = row("inline", 5e-6, stall=None, gil=None, rate=100_000)
    thread = row("thread", 75e-6, stall=None, gil=None, rate=20_000)
    verdict = judge(inline, thread, thread, cpu_share=1.0)
    assert verdict.startswith("Takes 5.0 us and a hand-over to a thread 70 us: call it where it is")


def test_a_slow_hand_over_does_not_make_a_call_of_milliseconds_short() -> None:
    inline = row("inline", 5e-3, stall=0.9, gil=0.1, rate=200)
    thread = row("thread", 50e-3, stall=0.1, gil=0.1, rate=200)
    assert judge(inline, thread, out(), cpu_share=1.0).startswith("Computes without the GIL")


@pytest.mark.parametrize("cpu_share", [0.3, 1.0])
def test_a_call_that_stalls_the_loop_from_a_thread_is_told_to_leave_the_interpreter(cpu_share: float) -> None:
    inline = row("inline", 16e-3, stall=0.97, gil=1.0, rate=60)
    thread = row("thread", 16e-3, stall=0.94, gil=1.0, rate=60)
    isolate = row("isolate", 17e-3, stall=0.02, gil=0.05, rate=110, worst=0.0004)
    assert judge(inline, thread, isolate, cpu_share=cpu_share) == (
        "Holds the GIL for 94% of its 16 ms, and no thread helps against that; declare it pure=True to "
        "move it to an isolate: the loop's delay there is 200 us (p99)."
    )


def test_one_that_cannot_be_carried_is_told_why() -> None:
    thread = row("thread", 16e-3, stall=0.94, gil=1.0, rate=60)
    verdict = judge(thread, thread, out(), cpu_share=1.0)
    assert verdict.startswith("Holds the GIL")
    assert verdict.endswith("but the isolate is out: not portable: it is local.")


def test_one_whose_arguments_are_as_heavy_is_told_to_pass_less() -> None:
    thread = row("thread", 16e-3, stall=0.94, gil=1.0, rate=60)
    isolate = row("isolate", 30e-3, stall=0.6, gil=0.7, rate=50)
    assert "pass less" in judge(thread, thread, isolate, cpu_share=1.0)


def test_python_code_goes_to_isolates_when_they_get_more_done() -> None:
    thread = row("thread", 30e-3, stall=0.03, gil=0.98, rate=30)
    verdict = judge(thread, thread, row("isolate", 30e-3, stall=0.02, gil=0.1, rate=57), cpu_share=1.0)
    assert verdict.endswith(
        "declare it pure=True to move it to isolates, which do 1.9 times the calls per second."
    )


def test_python_code_stays_in_threads_when_they_do_not() -> None:
    thread = row("thread", 30e-3, stall=0.03, gil=0.98, rate=30)
    verdict = judge(thread, thread, row("isolate", 40e-3, stall=0.02, gil=0.5, rate=30), cpu_share=1.0)
    assert verdict.endswith("leave it in threads.")


def test_python_code_that_cannot_be_carried_is_told_why() -> None:
    thread = row("thread", 30e-3, stall=0.03, gil=0.98, rate=30)
    assert judge(thread, thread, out(), cpu_share=1.0).endswith("but that is out: not portable: it is local.")


@pytest.mark.parametrize(
    ("cpu_share", "begin"),
    [(0.02, "Waits for 98% of its 20 ms"), (0.95, "Computes without the GIL (the GIL is 97% free")],
)
def test_a_call_that_leaves_the_gil_alone_waits_or_computes(cpu_share: float, begin: str) -> None:
    thread = row("thread", 20e-3, stall=0.05, gil=0.03, rate=300)
    assert judge(thread, thread, out(), cpu_share=cpu_share).startswith(begin)


def test_without_a_gil_nothing_is_said_of_it() -> None:
    thread = row("thread", 20e-3, stall=0.05, gil=None, rate=300)
    assert "no GIL is free" in judge(thread, thread, out(), cpu_share=1.0, gil=False)


@pytest.mark.parametrize(
    ("cpu_share", "begin"), [(0.02, "Waits for 98% of its 20 ms"), (0.95, "Too few calls to tell")]
)
def test_what_a_call_does_with_the_gil_is_not_told_without_looks_at_it(cpu_share: float, begin: str) -> None:
    thread = row("thread", 20e-3, stall=0.05, gil=None, rate=300)
    assert judge(thread, thread, out(), cpu_share=cpu_share).startswith(begin)


def test_a_function_that_cannot_run_in_a_thread_is_told_why() -> None:
    inline = row("inline", 20e-3, stall=0.9, gil=1.0, rate=50)
    thread = TrialRow(where="thread", problem="raised RuntimeError: main thread only")
    verdict = judge(inline, thread, out(), cpu_share=1.0)
    assert verdict == "It cannot run in a thread: raised RuntimeError: main thread only."
