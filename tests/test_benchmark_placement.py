"""The placement benchmarks: their arithmetic, their children, and one quick run of each."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks import inline, isolates, lost_workers, placement
from benchmarks.children.functions import FUNCTIONS, length_of, slow_if_told, spin, spin_at
from benchmarks.children.losing import Reaper
from benchmarks.children.placement import PLACES
from benchmarks.figures import Target
from benchmarks.harness import Candidate, Sample, spawn


def verdicts(targets: list[Target]) -> dict[str, bool]:
    return {target.claim: target.held for target in targets}


# ------------------------------------------------------------------ functions


def test_there_are_twenty_functions_of_every_kind() -> None:
    kinds = {kind for kind, _, _ in FUNCTIONS.values()}
    wanted = {"short", "long", "holding", "releasing", "waiting", "large argument", "large result"}
    assert len(FUNCTIONS) == 20
    assert kinds == wanted


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_every_function_can_be_carried_and_repeats_its_result(name: str) -> None:
    _, function, make = FUNCTIONS[name]
    carried, argument = pickle.loads(pickle.dumps((function, make())))
    if FUNCTIONS[name][0] != "waiting":
        assert carried(argument) == function(make())


def test_a_body_has_its_size() -> None:
    document = FUNCTIONS["JSON of 1.5 MB"][2]()
    assert len(document) == pytest.approx(1_500_000, rel=0.03)
    assert length_of(document) > 10_000


def test_the_sudden_function_is_fast_until_it_is_told() -> None:
    assert slow_if_told("fast") == 0
    assert len("fast") == len("slow")


def test_a_worker_tells_its_process() -> None:
    assert spin_at(100) == (spin(100), os.getpid())


# ------------------------------------------------------------------ inline


def cost(way: float, direct: float = 2.0) -> Sample:
    return {crowd: {"way_us": [way], "direct_us": [direct]} for crowd in inline.CROWDS}


def test_what_a_way_adds_is_the_difference_within_one_process() -> None:
    samples = {"cost: pure on asyncio": [cost(4.0), cost(5.5, 3.0)]}
    assert inline.added(samples, "pure", "asyncio", "one") == [2.0, 2.5]
    assert inline.added(samples, "pure", "uvloop", "one") == []


@pytest.mark.parametrize(("ours", "held"), [(4.4, True), (5.0, False)])
@pytest.mark.parametrize("slower", [1.0, 3.0])
def test_pure_may_add_a_twentieth_of_what_a_thread_adds(ours: float, held: bool, slower: float) -> None:
    samples = {
        "cost: pure on asyncio": [cost(ours)],
        "cost: to_thread on asyncio": [cost(52.0 * slower, 2.0 * slower)],
    }
    assert verdicts(list(inline._targets(samples))) == {
        f"asyncio, {title}: added by pure=True / by to_thread": held for title in inline.CROWDS.values()
    }


@pytest.mark.parametrize(
    ("stalls", "overruns", "held"),
    [([0.5, 0.01], 1, (True, True)), ([0.5, 0.5], 2, (False, True)), ([0.5], 0, (True, False))],
)
def test_a_function_that_becomes_slow_stalls_once_and_is_told_on(
    stalls: list[float], overruns: int, held: tuple[bool, bool]
) -> None:
    samples = {"sudden: pure on uvloop": [{"stalls": stalls, "overruns": overruns}]}
    assert tuple(verdicts(list(inline._targets(samples))).values()) == held


@pytest.mark.slow
def test_inline_calls_are_measured_in_a_process_of_their_own() -> None:
    for way in ("direct", "pure"):
        timing = {"block": 0.005, "blocks": 2, "warmup": 0.005}
        arguments = {"part": "cost", "way": way, "loop": "asyncio", **timing}
        found = spawn(Candidate(name=way, job="inline", arguments=arguments))
        assert all(
            len(found[crowd]["way_us"]) == len(found[crowd]["direct_us"]) == 2 for crowd in inline.CROWDS
        )


@pytest.mark.slow
def test_the_sudden_stall_is_measured() -> None:
    arguments = {"part": "sudden", "way": "pure", "loop": "asyncio", "slow_calls": 1}
    found = spawn(Candidate(name="sudden", job="inline", arguments=arguments))
    assert len(found["stalls"]) == 1
    assert found["overruns"] >= 0


# ------------------------------------------------------------------ isolates


def test_isolates_are_judged_by_the_busy_floor_and_the_cores() -> None:
    def loaded(p99: float, calls: Sequence[float] = (60.0, 20.0, 60.0)) -> list[Sample]:
        return [{"latency": {"p50": p99 / 2, "p99": p99}, "calls": calls, "alone": (40.0, 10.0, 40.0)}]

    samples = {
        "load: pure, python": loaded(0.003), "load: busy, python": loaded(0.002),
        "load: pure, json": loaded(0.005), "load: busy, json": loaded(0.002),
    }  # fmt: skip
    assert verdicts(list(isolates._targets(samples, cores=2))) == {
        "python: p99 beside pure=True / beside busy processes": True,
        "json: p99 beside pure=True / beside busy processes": False,
        "python: calls/s with pure=True / one thread's times the cores": False,
    }
    assert isolates.work_shares(samples, "pure", "python", cores=2) == [0.75]


def test_dispatch_to_an_isolate_is_a_promise_where_there_are_interpreters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    way = {"one": [60.0, 120.0], "eight": [40.0, 20.0]}
    samples = {"dispatch: isolate": [{"way": way, "thread": {"one": [50.0, 100.0], "eight": [10.0, 5.0]}}]}
    for interpreters, held in ((True, [True, False]), (False, [])):
        monkeypatch.setattr(isolates, "INTERPRETERS", interpreters)
        assert list(verdicts(list(isolates._targets(samples, cores=2))).values()) == held


@pytest.mark.slow
@pytest.mark.parametrize("part", ["load: busy", "load: thread", "dispatch: isolate", "dispatch: to_thread"])
def test_the_parts_of_isolates_run(part: str) -> None:
    (candidate, *_) = (c for c in isolates.candidates(quick=True, cores=1) if c.name.startswith(part))
    found = spawn(candidate)
    if part.startswith("load"):
        assert len(found["calls"]) == len(found["alone"]) > 1
    else:
        assert all(len(blocks["one"]) == len(blocks["eight"]) > 1 for blocks in found.values())


# ------------------------------------------------------------------ placement


def row(chosen: Mapping[str, int], **us: float) -> placement.Row:
    costs = {"auto": 1.0, **us}
    return placement.judge("Python, 1 ms", [{"us": costs, "chosen": chosen}])


def test_a_choice_is_judged_by_what_its_place_costs_when_forced() -> None:
    found = row({"isolate": 90, "thread": 10}, inline=1_000.0, thread=1_200.0, isolate=600.0)
    assert (found.chosen, found.regret) == ("isolate", 1.0)
    assert row({"thread": 9}, inline=1_000.0, thread=1_200.0, isolate=600.0).regret == 2.0


def test_inline_is_no_choice_for_a_long_call() -> None:
    assert row({"thread": 9}, inline=500.0, thread=550.0, isolate=600.0).is_near
    assert not row({"inline": 9}, inline=500.0, thread=550.0, isolate=600.0).is_near
    assert not row({"thread": 9}, inline=50.0, thread=60.0, isolate=60.0).is_near


def test_the_choice_of_most_repetitions_counts() -> None:
    us = {"auto": 1.0, "inline": 9e3, "thread": 3.0, "isolate": 2.0}
    chosen: list[dict[str, int]] = [{"thread": 5}, {"isolate": 5}, {"isolate": 3, "thread": 2}]
    taken: list[dict[str, Any]] = [{"us": us, "chosen": one} for one in chosen]
    assert placement.judge("sleep, 1 ms", taken).chosen == "isolate"


def test_every_placement_comes_first_in_turn() -> None:
    firsts = [placement.candidates(quick=True, repetition=r)[0].arguments["first"] for r in range(5)]
    assert firsts == [0, 1, 2, 3, 0]


@pytest.mark.slow
def test_every_placement_of_a_function_is_measured() -> None:
    arguments = {"function": "words of a line", "seconds": 0.02, "learning": 0.02, "first": 3}
    found = spawn(Candidate(name="words", job="placement", arguments=arguments))
    assert set(found["us"]) == set(PLACES)
    assert sum(found["chosen"].values()) > 0


@pytest.mark.slow
def test_a_picture_shows_every_function(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.placement_picture import draw

    rows = [row({"thread": 1}, inline=9.0, thread=2.0, isolate=3.0).to_dict()]
    assert "Python, 1 ms (long)" in draw({"rows": rows}, tmp_path / "placement.svg").read_text()


# ------------------------------------------------------------------ lost workers


def test_a_reaper_kills_a_worker_once_and_not_after_its_end() -> None:
    killed: list[int] = []
    strikes: list[Callable[[], None]] = []
    reaper = Reaper(
        Random(1),
        1.0,
        lambda worker, _: killed.append(worker),
        lambda delay, strike, worker: strikes.append(partial(strike, worker)),
    )
    for worker in (7, 7, 8):
        reaper.saw(worker)
    first, last = strikes
    first()
    reaper.stop()
    last()
    assert (killed, reaper.kills, reaper.seen) == ([7], 1, {7, 8})


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({}, []),
        ({"ends": {"returned": 9, "CancelledError": 1}}, ["calls that ended otherwise"]),
        ({"ends": {"returned": 9, "wrong": 1}}, ["calls that ended otherwise"]),
        ({"after": {"returned": 99, "WorkerLostError": 1}}, ["of 100 calls afterwards, failed"]),
        ({"shared": ["psm_1"]}, ["left behind"]),
        ({"threads": ["one"]}, ["left behind"]),
        ({"kills": 0}, ["workers killed, so that it means something"]),
    ],
)
def test_a_storm_is_judged_by_its_worst_repetition(change: Mapping[str, Any], broken: list[str]) -> None:
    fine = {
        "ends": {"returned": 9, "WorkerLostError": 1}, "after": {"returned": 100}, "kills": 3,
        "threads": [], "processes": [], "shared": [], "files": [],
    }  # fmt: skip
    targets = list(lost_workers._targets([fine, {**fine, **change}, fine]))
    assert [claim for claim, held in verdicts(targets).items() if not held] == broken


@pytest.mark.slow
def test_a_small_storm_loses_no_call() -> None:
    arguments = {"calls": 80, "kill_share": 0.05, "seed": 1}
    found = spawn(Candidate(name="storm", job="lost_workers", arguments=arguments))
    assert lost_workers.unexpected(found["ends"]) == 0
    assert sum(found["ends"].values()) == 80
    assert found["kills"] > 0
    assert (found["threads"], found["processes"], found["files"]) == ([], [], [])
