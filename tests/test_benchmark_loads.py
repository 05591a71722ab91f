"""The benchmark of loads: which size a sweep calls the best, what the figures say, and one quick run."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.__main__ import main
from benchmarks.children.loads import Run, drive, timed
from benchmarks.children.pools import Pool, Stamps, open_pool
from benchmarks.children.pulse import PERIOD, Pulse
from benchmarks.children.records import Records
from benchmarks.children.workloads import LOADS as OPENERS
from benchmarks.children.workloads import open_load
from benchmarks.harness import Candidate, Progress
from benchmarks.loads import figures, plan, running
from benchmarks.loads.report import make
from benchmarks.loads.store import Store
from benchmarks.loads.sweep import GRID, Point, best_size, doubtful, next_sizes

BEGIN = (1, 4, 16, 64, 256)
HEAD = {
    "facts": {
        **dict.fromkeys(("date", "python", "system"), ""),
        **dict.fromkeys(("cpus", "usable_cpus", "load_before"), 2),
        "libraries": {},
    },
    "absent": [],
    "quick": False,
}


def sample(rate: float, *, p99: float = 0.1, timeline: tuple[int, ...] = (10,) * 20) -> dict[str, Any]:
    phase = {"rate": rate, "timeline": list(timeline), "running": 1.0}
    phase |= {f"{what}_{name}": p99 for what in ("total", "run") for name in ("p50", "p99")}
    return {
        "phases": [phase],
        "cpu": 1.0,
        "cpu_others": 0.0,
        "threads_peak": 3,
        "loop_delay_p99": 0.002,
        "statistics": {"overdrafts": 0},
    }


def findings(
    ours: tuple[float, ...] = (98.0, 99.0, 100.0), best: tuple[float, ...] = (100.0,) * 3
) -> dict[str, Any]:
    return {
        "load": "compute",
        "tasks": 128,
        "seconds": 15.0,
        "facts": {"usable_cpus": 2, "date": ""},
        "default_size": 6,
        "sweep": {"1": {"rate": 50.0, "p99": 0.01}, "2": {"rate": 100.0, "p99": 0.01}},
        "best_size": 2,
        "pairs": [{"ours": sample(a), "best": sample(b)} for a, b in zip(ours, best, strict=True)],
        "alternatives": {},
        "alternative_seconds": 15.0,
    }


def sweep_with(rates: dict[int, float]) -> list[int]:
    """Return the sizes that a sweep tries, in order, where throughput is as given."""
    tried: dict[int, Point] = {}
    while sizes := next_sizes(tried, BEGIN):
        tried |= {size: Point(rate=rates[size], p99=0.0) for size in sizes}
    return list(tried)


@given(st.sampled_from(GRID))
def test_a_sweep_climbs_to_the_top_of_a_hill_wherever_it_is(top: int) -> None:
    rates = {size: 1000.0 - abs(GRID.index(size) - GRID.index(top)) for size in GRID}
    tried = sweep_with(rates)
    assert top in tried
    assert tried[: len(BEGIN)] == list(BEGIN)


@given(st.lists(st.floats(0, 1e5), min_size=len(GRID), max_size=len(GRID)))
def test_a_sweep_ends_and_tries_no_size_twice(rates: list[float]) -> None:
    tried = sweep_with(dict(zip(GRID, rates, strict=True)))
    assert len(tried) == len(set(tried)) <= len(GRID)


def test_a_size_off_the_grid_has_neighbours_on_it() -> None:
    points = {size: Point(rate=float(size == 10), p99=0.0) for size in (1, 10, 256)}
    assert next_sizes(points, ()) == [8, 12]


def test_of_the_sizes_within_two_percent_the_lowest_p99_wins() -> None:
    points = {8: Point(rate=99, p99=0.01), 16: Point(rate=100, p99=0.02), 4: Point(rate=97, p99=0.001)}
    assert best_size(points) == 8


@pytest.mark.parametrize(("second", "again"), [(96.0, [4, 8]), (94.0, [])])
def test_sizes_are_measured_again_when_one_run_cannot_tell_them_apart(
    second: float, again: list[int]
) -> None:
    points = {4: Point(rate=100, p99=0), 8: Point(rate=second, p99=0), 1: Point(rate=10, p99=0)}
    assert doubtful(points) == again


def test_a_load_whose_calls_take_long_together_is_swept_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, float, float]] = []

    def spawn(candidate: Candidate) -> Any:
        told = candidate.arguments
        seen.append((told["pool"], told["warmup"], told["seconds"]))
        return sample(1.0)

    monkeypatch.setattr(running, "spawn", spawn)
    monkeypatch.setattr(running, "ALTERNATIVES", {})
    running.measure(plan.Load(name="wait", title="", patience=4.0), plan.OFFICIAL, Progress("loads"))
    assert set(seen) == {("static", 1.0, 4.0), ("static", 0, 15.0), ("hybridrt", 0, 15.0)}


def test_efficiency_is_formed_pair_by_pair() -> None:
    drifting = findings(ours=(50.0, 99.0, 990.0), best=(100.0, 100.0, 1000.0))
    assert figures.efficiency(drifting).median == pytest.approx(0.99)
    assert figures.average_efficiency([drifting, findings()]).median == pytest.approx(0.99)


def test_a_load_that_ours_wins_hides_no_loss_in_the_average() -> None:
    won = findings(ours=(900.0,) * 3)
    assert figures.average_efficiency([won, findings(ours=(50.0,) * 3)]).median == pytest.approx(0.75)


def test_phases_count_alike_and_one_in_which_nothing_came_back_as_half_a_call() -> None:
    both, second = sample(4.0), sample(9.0)
    both["phases"] += second["phases"]
    assert figures.over_phases(both, "rate") == pytest.approx(6.0)
    both["phases"][1] |= {"rate": 0.0, "total_p99": None}
    assert figures.over_phases(both, "rate") == pytest.approx((4.0 * 0.25) ** 0.5)
    assert figures.over_phases(both, "total_p99") == pytest.approx((0.1 * 2.0) ** 0.5)


@pytest.mark.parametrize(
    ("timeline", "seconds"),
    [([10] * 10, 0.0), ([0, 0, 5] + [10] * 10, 0.2), ([1] * 20, None), ([50, 0, 0, 0, 0, 1, 1], 0.0)],
)
def test_the_ramp_ends_where_half_a_second_at_the_wanted_rate_begins(
    timeline: list[int], seconds: float | None
) -> None:
    assert figures.ramp_seconds(timeline, 90.0) == pytest.approx(seconds)


def test_a_run_that_never_gets_there_counts_with_its_whole_length() -> None:
    slow = findings()
    for pair in slow["pairs"]:
        pair["ours"]["phases"][0]["timeline"] = [1] * 20
    ramp = figures.ramps(slow)
    assert ramp is not None
    assert ramp.median == pytest.approx(2.0)


def test_a_load_with_phases_has_no_ramp() -> None:
    phased = findings()
    phased["pairs"][0]["ours"]["phases"] *= 2
    assert figures.ramps(phased) is None


def test_the_share_of_the_cores_is_against_one_thread_on_each() -> None:
    assert figures.share_of_cores(findings()).median == pytest.approx(0.99)


def test_the_report_holds_and_misses_its_promises() -> None:
    report = make(HEAD, plan.OFFICIAL, {"compute": findings()})
    kept = {target["claim"]: target["held"] for target in report.data["targets"]}
    assert kept["compute: efficiency"]
    assert kept["efficiency, average of the medians of all loads, each at most 1"]
    slow = make(HEAD, plan.OFFICIAL, {"compute": findings((9.0,) * 3)})
    assert "| compute: efficiency " in slow.text
    assert not any(t["held"] for t in slow.data["targets"] if "efficiency" in t["claim"])


def test_a_runtime_is_held_to_what_the_executor_alone_is() -> None:
    found = findings()
    found["alternatives"] = {"runtime": [sample(90.0, p99=0.2)] * 3}
    targets = make(HEAD, plan.OFFICIAL, {"compute": found}).data["targets"]
    held = {target["claim"]: target["held"] for target in targets}
    for claim in ("compute: efficiency", "compute: p99 of a call / best"):
        assert held[claim]
        assert not held[f"{claim}, Runtime"]


def test_the_others_run_as_long_and_as_often_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, float]] = []

    def spawn(candidate: Candidate) -> Any:
        told = candidate.arguments
        if not told["warmup"]:
            seen.append((told["pool"], told["seconds"]))
        return sample(1.0)

    monkeypatch.setattr(running, "spawn", spawn)
    monkeypatch.setattr(running, "importable", lambda module: True)
    found = running.measure(plan.Load(name="wait", title=""), plan.OFFICIAL, Progress("loads"))
    pools = ("static", "hybridrt", "betapool", "anyio", "paper", "runtime")
    assert seen == [(pool, 15.0) for pool in pools] * 5
    assert not any(figures.was_brief(found, pool) for pool in ("betapool", "anyio", "paper"))


def test_an_alternative_is_compared_with_the_run_of_the_best_beside_it() -> None:
    found = findings(best=(100.0, 200.0, 400.0))
    found["alternatives"]["anyio"] = [sample(rate) for rate in (50.0, 100.0, 200.0)]
    share = figures.share_of_best(found, "anyio")
    assert share is not None
    assert (share.low, share.high) == pytest.approx((0.5, 0.5))
    assert figures.share_of_best(found, "betapool") is None


def test_an_alternative_that_ran_once_and_briefly_stands_in_brackets() -> None:
    once = findings() | {"alternatives": {"anyio": [sample(40.0)]}, "alternative_seconds": 2.0}
    text = make(HEAD, plan.OFFICIAL, {"compute": once}).text
    assert re.search(r"^\| compute .*\(0.40\) \| 0.99 \|$", text, re.MULTILINE)
    assert "one run of 2 s" in text
    often = findings() | {"alternatives": {"anyio": [sample(40.0)] * 3}}
    text = make(HEAD, plan.OFFICIAL, {"compute": often}).text
    assert re.search(r"^\| compute .* 0.40 \| 0.99 \|$", text, re.MULTILINE)
    assert "in brackets" not in text


def test_a_report_shows_the_loop_of_every_candidate_and_what_decided() -> None:
    found = findings()
    found["alternatives"] = {"runtime": [sample(1.0) | {"loop_delay_p99": 0.004}] * 3}
    found["sweep"]["32"] = {"rate": 90.0, "p99": 0.01, "loop": 0.1}
    decisions = [[0.5, 8, "demand", 0.9], [1.0, 8, "beta_veto", 0.2], [1.5, 8, "beta_veto", 0.2]]
    for pair in found["pairs"]:
        pair["ours"]["statistics"]["decisions"] = decisions
    text = make(HEAD, plan.OFFICIAL, {"compute": found}).text
    assert re.search(r"^\| load +\| +best \| +static 32 \| +runtime \| +ours \|$", text, re.MULTILINE)
    assert re.search(r"^\| compute +\| +2.0 \| +100.0 \| +4.0 \| +2.0 \|$", text, re.MULTILINE)
    assert figures.reason_shares(found) == pytest.approx({"beta_veto": 2 / 3, "demand": 1 / 3})
    assert re.search(r"^\| compute +\| +0.67 \| +0.33 \|$", text, re.MULTILINE)


def over_limit(found: dict[str, Any], pool: str) -> float:
    late = figures.loop_over_limit(found, pool)
    assert late is not None
    return late.median


def test_the_loop_may_be_late_by_five_milliseconds_or_a_tenth_of_what_the_best_size_makes_it() -> None:
    found = findings()
    late = [sample(1.0) | {"loop_delay_p99": seconds} for seconds in (0.004, 0.008, 0.006)]
    found["alternatives"] = {"runtime": late}
    assert over_limit(found, "ours") == pytest.approx(0.002 / 0.005)
    assert over_limit(found, "runtime") == pytest.approx(0.006 / 0.005)
    for pair in found["pairs"]:
        pair["best"] = sample(100.0) | {"loop_delay_p99": 0.1}
    assert over_limit(found, "runtime") == pytest.approx(0.006 / 0.010)
    assert figures.loop_over_limit(found, "anyio") is None


def test_a_report_names_the_timer_that_tells_the_loops_delay() -> None:
    text = make(HEAD, plan.OFFICIAL, {"compute": findings()}).text
    assert f"lateness of a {1000 * PERIOD:.0f} ms timer" in text


def test_a_report_says_which_loads_ran_with_which_code() -> None:
    old, new = findings(), findings()
    old["facts"] |= {"date": "2026-01-02", "recorded_with": "abcdef1"}
    old["alternatives"] = {"anyio": [sample(1.0)]}
    new["facts"] |= {"date": "2026-01-03", "commit": "1234567"}
    found = {"vision": old, "voice": old, "compute": new}
    text = make(HEAD, plan.OFFICIAL, found).text
    assert "- 2026-01-02, commit not noted, recorded with abcdef1, anyio 1 x 15 s: vision, voice\n" in text
    assert "- 2026-01-03, commit 1234567: compute\n" in text


def test_every_load_of_the_plan_can_be_opened_by_the_child() -> None:
    assert [load.name for load in plan.LOADS] == list(OPENERS)


def test_a_load_that_does_not_exist_is_refused_and_one_that_cannot_run_is_named() -> None:
    lame = plan.Load(name="lame", title="", needs=("no_such_module",))
    sound = plan.Load(name="sound", title="")
    assert plan.choose((), (lame, sound)) == ([sound], ["lame"])
    with pytest.raises(ValueError, match="got deaf; there are: lame, sound"):
        plan.choose(("deaf",), (lame, sound))
    with pytest.raises(ValueError, match="need no_such_module"):
        plan.choose(("lame",), (lame, sound))


def test_what_a_load_found_survives_the_process(tmp_path: Path) -> None:
    Store(tmp_path).keep("wait", {"best_size": 7})
    assert Store(tmp_path).found == {"wait": {"best_size": 7}}
    assert Store(None).found == {}


def test_findings_of_a_shorter_run_are_measured_again() -> None:
    short = findings(ours=(1.0,) * plan.SHORT.pairs, best=(1.0,) * plan.SHORT.pairs)
    short["seconds"] = plan.SHORT.seconds
    assert plan.is_measured(short, plan.SHORT)
    assert not plan.is_measured(short, plan.OFFICIAL)
    assert not plan.is_measured(None, plan.SHORT)


def test_records_count_what_came_back_in_the_window() -> None:
    records = Records()
    for number in range(100):
        at = number / 10 + 0.05
        records.add(at - 0.44, at - 0.14, at - 0.04, at)
    told = records.summary(1.0, 3.0)
    assert told["calls"] == 20
    assert told["rate"] == pytest.approx(10)
    assert told["total_p99"] == pytest.approx(0.44)
    assert told["run_p50"] == pytest.approx(0.1)
    assert told["running"] == pytest.approx(1.0)
    assert sum(told["timeline"]) == 20


def test_results_that_a_late_loop_gets_at_once_do_not_count_for_its_window() -> None:
    records = Records()
    for _ in range(50):
        records.add(0.0, 0.1, 0.9, 1.1)
    records.add(1.0, 1.1, 1.2, 1.3)
    assert records.summary(1.0, 2.0)["calls"] == 1
    assert records.summary(0.0, 2.0)["calls"] == 51


def test_records_of_nothing_say_so() -> None:
    told = Records().summary(0.0, 1.0)
    assert told["calls"] == 0
    assert told["total_p99"] is None


def test_the_phases_of_a_run_are_functions_of_their_own() -> None:
    first, second = (timed(int, name) for name in ("phase0", "phase1"))
    assert first.__code__ != second.__code__  # type: ignore[attr-defined]
    began, ended = first()
    assert began <= ended


def test_a_run_goes_through_its_phases_in_equal_parts() -> None:
    run = Run([int, str], seconds=100.0)
    assert run.phase(0.0) == 0
    run.count()
    shares = (-100.0, -50.1, -49.9, -0.1, 0.1)
    assert [run.phase(run.ends + share) for share in shares] == [0, 0, 1, 1, 1]


async def test_a_standing_task_submits_until_the_run_is_over() -> None:
    run = Run([int], seconds=100.0)
    run.count()

    async def submit(call: Any) -> Stamps:
        if run.returned() == 4:
            run.ends = 0.0
        stamps: Stamps = call()
        return stamps

    await drive(run, Pool(submit=submit))
    assert run.returned() == 5


@pytest.mark.parametrize("name", ["static", "hybridrt", "paper", "anyio"])
async def test_a_pool_runs_calls_for_a_coroutine(name: str) -> None:
    async with open_pool(name, 2 if name == "static" else None) as pool:
        assert await pool.submit(lambda: (1.0, 2.0)) == (1.0, 2.0)
        assert json.dumps(pool.statistics())


async def test_a_pulse_that_never_beat_tells_nothing() -> None:
    pulse = Pulse()
    pulse.start()
    pulse.stop()
    assert pulse.quantile(0.99) is None


@pytest.mark.parametrize("name", ["compute", "disk", "fusion", "hash", "slm", "two-phase", "voice"])
def test_a_load_makes_its_calls(name: str) -> None:
    with open_load(name) as phases:
        for call in phases:
            call()


def test_the_model_has_the_weights_of_mobilenet_v2() -> None:
    """3,504,872 as published, less the 17,056 of folded normalisation, and the two bounds of ReLU6."""
    mobilenet = pytest.importorskip("benchmarks.children.workloads.mobilenet")
    weights = mobilenet.build().graph.initializer
    sizes = [math.prod(weight.dims) for weight in weights]
    assert sum(sizes) == 3_504_872 - 17_056 + 2


@pytest.mark.slow
def test_rag_asks_a_server_that_ends_with_it() -> None:
    with open_load("rag") as (call,):
        prompt = call()
    assert isinstance(prompt, str)
    assert prompt.startswith("Answer from these passages")


def measure_little(monkeypatch: pytest.MonkeyPatch, which: str, *, pairs: int) -> None:
    """Have a run of that length take a second."""
    timing = plan.Timing(pairs=pairs, seconds=0.2, sweep=0.05, warmup=0.02, sizes=(1,))
    monkeypatch.setattr(plan, which, timing)
    monkeypatch.setattr(running, "default_size", lambda: 1)
    monkeypatch.setattr(running, "ALTERNATIVES", {})


@pytest.mark.slow
def test_a_quick_run_keeps_each_load_and_goes_on_from_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_little(monkeypatch, "QUICK", pairs=1)
    command = ["loads", "--quick", "--only", "compute", "--out", str(tmp_path)]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert "compute: efficiency" in first
    monkeypatch.setattr(running, "spawn", None)
    assert main([*command, "--resume"]) == 0
    again = capsys.readouterr().out
    assert all(line in again for line in first.splitlines() if line.startswith("| compute"))


@pytest.mark.slow
def test_a_short_run_measures_less_and_its_report_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_little(monkeypatch, "SHORT", pairs=2)
    assert main(["loads", "--short", "--only", "compute", "--out", str(tmp_path)]) == 0
    assert "then run in turn, 2 times" in capsys.readouterr().out
