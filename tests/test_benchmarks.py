"""The benchmarks' arithmetic, their protocol, and one run of the command."""

from __future__ import annotations

import asyncio
import json
import platform
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import harness, phases, starts
from benchmarks.__main__ import main
from benchmarks.children import echo, mixed
from benchmarks.children.dispatch import Meter, drive
from benchmarks.children.echoing import Paced
from benchmarks.children.phases import weighted
from benchmarks.children.services import SERVICES, Service
from benchmarks.fairness import times_alone
from benchmarks.figures import Target, differences, ratios, spread, table
from benchmarks.harness import (
    RESULTS,
    Candidate,
    ChildError,
    Progress,
    commit,
    facts,
    interleave,
    origin,
    select,
    spawn,
)

A, B = (Candidate(name=name, job="clocks", arguments={"reads": 10, "blocks": 2}) for name in "AB")
REPORTS = sorted(RESULTS.glob("*.json"))
finite = st.floats(0.001, 1e6)


@given(st.lists(finite, min_size=1, max_size=40))
def test_a_spread_brackets_its_median(values: list[float]) -> None:
    found = spread(values)
    assert min(values) == found.low <= found.sure_low <= found.median <= found.sure_high <= found.high
    assert found.high == max(values)


@pytest.mark.parametrize(("count", "left_off"), [(1, 0), (6, 0), (9, 1), (21, 5)])
def test_the_sure_interval_is_that_of_order_statistics(count: int, left_off: int) -> None:
    found = spread(range(count))
    assert (found.sure_low, found.sure_high) == (left_off, count - 1 - left_off)


def test_a_spread_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        spread([])


@given(st.lists(finite, min_size=1, max_size=20), st.floats(0.5, 2.0))
def test_a_ratio_within_pairs_does_not_see_the_drift_between_them(drift: list[float], factor: float) -> None:
    found = ratios([factor * step for step in drift], drift)
    assert found.low == pytest.approx(factor)
    assert found.high == pytest.approx(factor)


def test_a_difference_is_formed_pair_by_pair() -> None:
    assert differences([2.0, 12.0, 103.0], [1.0, 10.0, 100.0]).median == 2.0


def test_pairs_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="got 1 and 2"):
        ratios([1.0], [1.0, 2.0])


@pytest.mark.parametrize(("limit", "verdict"), [(2.0, "held"), (1.9, "missed")])
def test_a_target_is_held_when_its_median_is_within_the_limit(limit: float, verdict: str) -> None:
    target = Target(claim="a / b", figure=spread([1.0, 2.0, 9.0]), limit=limit)
    assert target.row()[-1] == verdict
    assert target.to_dict()["held"] is (verdict == "held")


def test_a_table_lines_up() -> None:
    lines = table(("way", "us"), [("a long name", "1"), ("b", "12.5")]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].endswith("---: |")
    assert lines[-1] == "| b           | 12.5 |"


def test_candidates_are_interleaved() -> None:
    assert [c.name for c in interleave([A, B], 2)] == ["A", "B", "A", "B"]


def test_a_candidate_whose_module_is_missing_is_named_and_left_out() -> None:
    lame = Candidate(name="lame", job="clocks", arguments={}, needs=("no_such_module",))
    assert select([A, lame], []) == ([A], ["lame"])
    with pytest.raises(ValueError, match="need no_such_module"):
        select([lame], [])


def test_a_filter_that_matches_nothing_lists_what_there_is() -> None:
    with pytest.raises(ValueError, match="got C; there are: A, B"):
        select([A, B], ["C"])


def test_the_facts_name_neither_the_machine_nor_its_paths() -> None:
    told = json.dumps(facts())
    assert platform.node() not in told
    assert "/" not in told


@pytest.mark.parametrize("measured", ["hybridrt", "examples/gateway"])
def test_the_facts_name_the_commit_and_changes_to_what_is_measured(tmp_path: Path, measured: str) -> None:
    def git(*command: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True, capture_output=True)

    assert commit(tmp_path) is None
    for folder in (measured, "benchmarks/results"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text("before")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    head = commit(tmp_path)
    assert head is not None
    assert re.fullmatch("[0-9a-f]{7,}", head)
    (tmp_path / "benchmarks" / "results" / "file").write_text("after")
    assert commit(tmp_path) == head
    (tmp_path / measured / "file").write_text("after")
    assert commit(tmp_path) == f"{head} with uncommitted changes"
    assert commit(tmp_path / measured) is None


@pytest.mark.parametrize("report", REPORTS, ids=[report.name for report in REPORTS])
def test_each_report_says_with_which_code_it_was_made(report: Path) -> None:
    said = origin(json.loads(report.read_text())["facts"])
    assert re.search("commit .*[0-9a-f]{7}", said)
    text = report.with_name(report.name.removesuffix("json") + "md")
    assert said in text.read_text()


def test_progress_to_a_file_is_a_few_lines() -> None:
    stream = StringIO()
    progress = Progress("dispatch", stream)
    progress.start(100)
    for _ in range(100):
        progress.show("A")
    assert len(stream.getvalue().splitlines()) <= 11


async def test_standing_tasks_share_the_turns_and_make_every_call_once() -> None:
    made: list[int] = []

    async def call(turn: int) -> int:
        made.append(turn)
        return turn

    await drive(call, 8, iter(range(100)))
    assert sorted(made) == list(range(100))


@pytest.mark.parametrize("job", [echo, mixed], ids=["echo", "mixed"])
def test_a_service_whose_calls_fail_is_no_figure(job: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def broken(size: None) -> AsyncIterator[Service]:
        async def run(*call: object) -> object:
            raise LookupError("no such worker")

        yield Service(run=run)

    async def pace(pacing: object, counts: Callable[[], Mapping[str, float]]) -> Paced:
        for _ in range(3):
            await asyncio.sleep(0)
        return Paced(clients={}, counted=counts())

    monkeypatch.setitem(SERVICES, "broken", broken)
    monkeypatch.setattr(job, "pace", pace)
    amounts = {"calls": 2} if job is echo else {"size": None, "requests": 2, "pause": 0.0}
    pacing = {"rate": 1.0, "connections": 1, "warmup": 0.0, "seconds": 0.0}
    with pytest.raises(LookupError, match="no such worker"):
        job.measure(way="broken", loop="asyncio", units=1, pacing=pacing, **amounts)


def test_a_meter_leaves_the_warm_up_out() -> None:
    meter = Meter(block=0.0001, blocks=3, warmup=0.0001)
    assert len(list(meter.turns())) >= 4
    assert len(meter.wall_us) == len(meter.cpu_us) == 3
    assert all(us > 0 for us in meter.wall_us)


def test_a_candidate_runs_in_a_process_of_its_own_and_prints_json() -> None:
    reads = spawn(A)
    assert len(reads["time.perf_counter_ns"]) == 2
    assert all(ns > 0 for ns in reads["time.perf_counter_ns"])


def test_a_candidate_that_fails_says_why() -> None:
    broken = Candidate(name="broken", job="clocks", arguments={"reads": "many", "blocks": 1})
    with pytest.raises(ChildError, match=r"(?s)broken ended with code 1:.*TypeError"):
        spawn(broken)


def test_a_candidate_that_does_not_end_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "_CHILD_TIMEOUT", 0.01)
    assert main(["dispatch", "--quick", "--only", "inline on asyncio"]) == 1
    assert "inline on asyncio must end within 0.01 s, and did not" in capsys.readouterr().err


@pytest.mark.slow
def test_measuring_is_really_off_in_every_other_block() -> None:
    timing = {"pairs": 2, "block": 0.005, "warmup": 0.05}
    arguments = {"way": "offload", "loop": "asyncio", "tasks": 8, **timing}
    sample = spawn(Candidate(name="offload", job="measuring", arguments=arguments))
    assert sample["booked"]["off"] == 0 < sample["booked"]["on"]
    assert [len(blocks) for blocks in sample["wall_us"].values()] == [2, 2]


@pytest.mark.slow
def test_memory_is_sampled_after_every_stretch_of_calls() -> None:
    arguments = {"job": "growth", "way": "submit", "calls": 3_000, "every": 1_000}
    samples = spawn(Candidate(name="submit", job="memory", arguments=arguments))["samples"]
    assert len(samples) == 3
    assert all(sample["private"] > 0 and sample["threads"] >= 1 for sample in samples)


@pytest.mark.slow
def test_a_quick_run_writes_json_and_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dispatch", "--quick", "--only", "run_in_executor on asyncio", "--out", str(tmp_path)]) == 0
    (data,) = map(json.loads, (path.read_text() for path in tmp_path.glob("dispatch-py*.json")))
    (text,) = (path.read_text() for path in tmp_path.glob("dispatch-py*.md"))
    assert len(data["samples"]["run_in_executor on asyncio"]) == data["repetitions"] == 3
    assert data["wall_us"]["standing"]["run_in_executor on asyncio"]["median"] > 0
    assert text.strip() == capsys.readouterr().out.strip()
    assert "A quick run" in text


def test_the_list_asks_a_question_per_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert all(line.endswith("?") for line in capsys.readouterr().out.splitlines())


def test_a_wrong_filter_is_an_error_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dispatch", "--only", "nobody"]) == 1
    assert "got nobody" in capsys.readouterr().err


def test_a_short_call_gets_through_beside_endless_ones() -> None:
    arguments = {"pool": "hybridrt", "beside": "eight endless calls", "call": 0.002, "calls": 3}
    sample = spawn(Candidate(name="fairness", job="fairness", arguments=arguments))
    assert (len(sample["alone_ms"]), len(sample["beside_ms"]), sample["lost"]) == (3, 3, False)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["stdlib", "hybridrt"])
def test_the_start_of_a_call_of_every_kind_is_timed(pool: str) -> None:
    arguments = {"pool": pool, "beside": ["a long known job", "short calls"], "times": 1}
    found = spawn(Candidate(name="starts", job="starts", arguments=arguments))["seconds"]
    assert set(found) == (set(starts.KINDS) if pool == "hybridrt" else set(starts.KINDS[:5]) | {"names"})
    assert found["waiting"][0] is not None


def test_a_call_that_never_started_is_no_figure_and_misses_its_target() -> None:
    samples = [
        {"seconds": {"long": [0.1, 0.4], "short": [0.2, None]}},
        {"seconds": {"long": [0.3], "short": []}},
    ]
    assert starts._longest(samples) == {"long": 0.4, "short": None}
    assert starts._target("starts", [0.4, None], 0.5).row()[-1] == "missed"
    assert starts._target("starts", [0.4, 0.3], 0.5).row()[-1] == "held"


def test_what_a_call_takes_is_told_in_times_of_it_alone_at_the_speed_of_that_moment() -> None:
    alone = {"alone_ms": [5.5] * 3, "alone_cpu_ms": [5.0] * 3}
    sample = {**alone, "beside_ms": [11.0, 22.0, 22.0], "beside_cpu_ms": [5.0, 10.0, 5.0]}
    assert times_alone(sample) == pytest.approx([2.0, 2.0, 4.0])


def test_a_sleeper_tells_a_free_gil_from_a_taken_one() -> None:
    found = {}
    for seconds in (0.1, 0.5, 2.0):  # on a busy machine the sleeper is late for other reasons
        for work in ("zlib", "bytecode"):
            arguments = {"work": work, "threads": 1, "interval": 0.005, "seconds": seconds}
            found[work] = spawn(Candidate(name=work, job="gil", arguments=arguments))
        if found["zlib"]["free"] > 0.5:
            break
    assert found["zlib"]["free"] > found["bytecode"]["free"] < 0.5
    assert found["bytecode"]["work"] > 0


def test_the_cost_of_the_governor_and_of_an_idle_runtime_is_told() -> None:
    timing = {"seconds": 0.1, "warmup": 0.1}
    found = {}
    for job in ("idle", "92 calls that wait 50 ms"):
        found[job] = spawn(Candidate(name=job, job="cost", arguments={"job": job, **timing}))
    assert found["idle"]["cpu"] > 0
    assert found["92 calls that wait 50 ms"]["governor"] > 0
    assert found["92 calls that wait 50 ms"]["running"] > 0


def test_the_lateness_of_a_loop_is_weighted_by_time() -> None:
    assert weighted([0.0] * 90 + [1.0]) == 1.0
    assert weighted([0.001] * 1000) == 0.001
    assert weighted([]) == 0.0


@pytest.mark.parametrize(("way", "few"), [("static", 0.0), ("bare", 0.0), ("runtime", 0.1), ("anyio", 0.0)])
def test_calls_that_wait_and_compute_are_timed_beside_their_loop(way: str, few: float) -> None:
    arguments = {"load": "5 ms + 1 ms Python", "way": way, "size": 2, "loop": "asyncio", "few": few}
    timing = {"in_flight": 4, "seconds": 0.3, "warm": 0.05}
    sample = spawn(Candidate(name="phases", job="phases", arguments={**arguments, **timing}))
    assert set(sample) == {"calls", "loop", "cold", "call"}


def test_where_native_threads_fill_the_cores_a_timer_in_another_process_is_timed_too() -> None:
    pytest.importorskip("numpy")
    arguments = {"load": "20 ms + numpy", "way": "static", "size": 2, "loop": "asyncio", "few": 0.0}
    timing = {"in_flight": 4, "seconds": 0.3, "warm": 0.05}
    sample = spawn(Candidate(name="phases", job="phases", arguments={**arguments, **timing}))
    assert set(sample) == {"calls", "loop", "cold", "call", "timer"}
    assert sample["timer"] > 0.0


def test_each_promise_of_phases_is_told_for_both_of_our_pools() -> None:
    figures = {"calls": 100.0, "loop": 4.0, "cold": 9.0, "call": 50.0, "parse": 2.5, "timer": 3.0}
    for load in phases.LOADS:
        samples = {f"{title} under {load}": [figures] for title in (*phases.OURS, "static 16", "static 32")}
        told = list(phases._targets(load, samples))
        assert len(told) == 3 * len(phases.OURS)
        assert {target.held for target in told} == {True}
