"""The benchmark `disk`: which fixed size is the best, what it says of the document, and that its jobs run."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import disk
from benchmarks.children import disk as child
from benchmarks.children.watermark import HIGHEST, Watermark
from benchmarks.harness import Options, header
from hybridrt import Reason, State
from tests.control.windows import LIMITS, window


def sample(seconds: float, average: float = 4.0, **more: Any) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "average": average,
        "peak": int(average) + 1,
        "curve": [[0.0, 1, 0], [1.0, 4, 5_000_000], [2.0, 4, 9_000_000]],
        **more,
    }


def ways(**seconds: float) -> dict[str, list[Any]]:
    return {name.replace("_", " "): [sample(one)] * 3 for name, one in seconds.items()}


def test_the_best_fixed_size_is_the_smallest_within_three_per_cent() -> None:
    found = ways(fixed_1=20.0, fixed_4=10.2, fixed_16=10.0, fixed_64=10.4, demand=5.0)
    assert disk.best_fixed(found) == "fixed 4"
    assert disk.best_fixed(ways(demand=5.0)) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (10.2, "holds here: `throughput` took 2 % more time than fixed 4"),
        (9.0, "holds here: `throughput` took 10 % less time than fixed 4"),
        (12.5, "does not hold here: `throughput` took 25 % more time than fixed 4"),
    ],
)
def test_the_report_says_in_words_whether_the_claim_holds(seconds: float, words: str) -> None:
    found = ways(fixed_4=10.0, demand=10.0)
    made = [[0.0, 1, "start"], [1.5, 2, "scaling"], [3.0, 2, "settled"]]
    found["throughput"] = [sample(seconds, 3.0, decisions=made)] * 3
    found["watermark"] = [sample(20.0, 60.0)] * 3
    text = disk.report(header(disk.__doc__, Options(), 3, []), {"sync": found}).text
    assert words in text
    assert "with 3.0 threads on average where that has 4" in text
    assert "holds: 3.0 are fewer than 60.0" in text
    assert "these of its three states: scaling, settled." in text
    assert "| demand, sync" in text
    assert "held" in text


def test_a_report_of_some_ways_alone_says_less() -> None:
    text = disk.report(header(disk.__doc__, Options(), 1, []), {"sync": ways(demand=5.0)}).text
    assert "claim" not in text
    assert "Promises" not in text


def test_every_load_runs_on_every_pool_in_a_quick_run_too() -> None:
    full, quick = (disk.candidates(quick=each) for each in (False, True))
    assert len(full) == len(disk.LOADS) * (len(disk.SIZES) + len(disk.RIVALS))
    jobs = [count for one in quick for _, count in one.arguments["batches"]]
    assert min(jobs) >= 10
    assert max(jobs) <= 200


@pytest.mark.slow
@pytest.mark.parametrize("job", ["nosync", "sync", "sqlite", "lmdb"])
def test_a_load_runs_and_tells_of_size_and_bytes(job: str) -> None:
    if job == "lmdb":
        pytest.importorskip("lmdb")
    told = child.measure(
        load="any", pool="fixed", size=2, batches=[(job, 3), (job if "sync" in job else "nosync", 2)]
    )
    assert len(told["ends"]) == 2
    assert told["seconds"] == told["ends"][-1] > 0.0
    assert 0 <= told["average"] <= told["peak"] <= 2
    assert len(told["curve"]) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["watermark", "demand"])
def test_a_governed_pool_tells_of_its_decisions(pool: str) -> None:
    told = child.measure(load="any", pool=pool, size=8, batches=[("nosync", 3)])
    assert told["decisions"][0][2] == "start"
    assert told["policy_error"] is None


def test_the_watermark_pool_has_a_thread_for_each_call_up_to_its_bound() -> None:
    law = Watermark()
    few = law.decide(LIMITS, State(workers=3), window(queued=4, running=3))
    assert (few.workers, few.reason) == (7, Reason.DEMAND)
    assert law.decide(LIMITS, few, window(queued=500, running=7)).workers == HIGHEST
    none = law.decide(LIMITS, few, window())
    assert (none.workers, none.reason) == (0, Reason.NO_DEMAND)
    assert law.decide(LIMITS, none, window()).reason is Reason.HOLD
