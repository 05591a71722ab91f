"""The simulator: its analytic optimum, its process, the sizers of others."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import simulator
from benchmarks.harness import Options
from benchmarks.simulator.drive import simulate
from benchmarks.simulator.network import Station, throughput_curve
from benchmarks.simulator.rivals import Fixed
from benchmarks.simulator.scenario import Call, Load, Machine, Scenario, Server
from benchmarks.simulator.scenarios import HOLDOUT, NAMED, SEEN, TUNING, draw_many
from benchmarks.simulator.score import SIZERS

MS = 0.001
_demand = st.floats(1e-4, 1.0)


@settings(max_examples=30, deadline=None)
@given(think=_demand, demand=_demand)
def test_a_closed_network_follows_mean_value_analysis(think: float, demand: float) -> None:
    curve = throughput_curve([Station(demand=think), Station(demand=demand, servers=1)], 12)
    queue = 0.0
    for number, throughput in enumerate(curve, 1):
        expected = number / (think + demand * (1.0 + queue))
        queue = expected * demand * (1.0 + queue)
        assert throughput == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(wait=_demand, demand=_demand, servers=st.integers(1, 5))
def test_throughput_never_falls_with_threads_nor_passes_the_bottleneck(
    wait: float, demand: float, servers: int
) -> None:
    curve = throughput_curve([Station(demand=wait), Station(demand=demand, servers=servers)], 30)
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in pairwise(curve))
    assert curve[-1] <= servers / demand * (1 + 1e-9)


def test_a_server_that_slows_down_has_its_best_in_between() -> None:
    curve = throughput_curve([Station(demand=0.02, servers=4, slowdown=0.05)], 60)
    assert curve.index(max(curve)) + 1 == 4


@pytest.mark.parametrize(("size", "throughput"), [(1, 20.0), (4, 80.0), (8, 160.0), (16, 160.0)])
def test_constant_calls_at_a_server_end_as_fast_as_it_serves(size: int, throughput: float) -> None:
    call = Call(served=50 * MS, spread=0.0)
    load = Load(calls=(call,), clients=20, server=Server(servers=8))
    run = simulate(Scenario("disk", (load,)), Fixed(size), 1, until=5.0)
    assert run.throughput(1.0, 5.0) == pytest.approx(throughput, rel=0.02)


def test_the_gil_serves_one_at_a_time_and_cores_several() -> None:
    load = Load(calls=(Call(gil=10 * MS, spread=0.0),), clients=16)
    with_gil = Scenario("gil", (load,), machine=Machine(gil=True, cores=4, switch_cost=0.0, crowd_cost=0.0))
    without = Scenario("cores", (load,), machine=Machine(gil=False, cores=4))
    assert simulate(with_gil, Fixed(8), 1, until=3.0).throughput(1.0, 3.0) == pytest.approx(100.0, rel=0.02)
    assert simulate(without, Fixed(8), 1, until=3.0).throughput(1.0, 3.0) == pytest.approx(400.0, rel=0.02)


def test_the_simulated_process_reaches_its_optimum_with_enough_threads() -> None:
    load = Load(calls=(Call(wait=20 * MS, gil=2 * MS),), clients=60)
    scenario = Scenario("full", (load,), machine=Machine(switch_cost=0.0, crowd_cost=0.0))
    run = simulate(scenario, Fixed(60), 3, until=20.0)
    assert run.throughput(5.0, 20.0) == pytest.approx(scenario.optima[0].throughput, rel=0.05)


@pytest.mark.parametrize("burst", [1, 5])
def test_every_sizer_meets_the_same_calls_at_the_same_moments(burst: int) -> None:
    call = Call(wait=20 * MS, gil=MS, spread=1.5)
    scenario = Scenario("open", (Load(calls=(call,), rate=100.0, burst=burst),))
    few, many = (simulate(scenario, Fixed(size), 1, until=3.0) for size in (1, 64))
    assert [tick.arrived for tick in few.ticks] == [tick.arrived for tick in many.ticks]
    # One at a time, they are served in order of arrival, so the first calls of both are the same ones.
    first = [round(end - delay, 9) for end, delay in few.ends]
    assert set(first) <= {round(end - delay, 9) for end, delay in many.ends}


def test_windows_obey_littles_law() -> None:
    run = simulate(NAMED[1], Fixed(64), 1, until=3.0, keep_windows=True)
    late = run.windows[-20:]
    busy = sum(window.busy * window.seconds for window in late)
    assert busy == pytest.approx(sum(window.wall for window in late), rel=0.1)
    assert all(window.running <= 64 for window in late)


def test_the_same_seed_gives_the_same_scenarios_and_the_same_run() -> None:
    assert draw_many(TUNING[0], 5) == draw_many(TUNING[0], 5)
    one, two = (simulate(NAMED[0], Fixed(32), 4, until=1.0).ends for _ in range(2))
    assert one == two


def test_the_scenarios_reported_are_not_those_tuned_on() -> None:
    assert not {*TUNING, *SEEN} & {*HOLDOUT}
    assert draw_many(TUNING[0], 3)[0].loads != draw_many(HOLDOUT[0], 3)[0].loads


@pytest.mark.parametrize("name", list(SIZERS))
def test_every_sizer_keeps_a_size_within_the_bounds(name: str) -> None:
    run = simulate(NAMED[2], SIZERS[name](), 1, until=3.0)
    assert all(1 <= tick.size <= 256 for tick in run.ticks)
    assert run.ends


@pytest.mark.slow
def test_a_report_has_a_row_for_each_sizer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Here:
        """Runs jobs where it is: a process pool would outlive a test that fails."""

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        map = staticmethod(map)

    monkeypatch.setattr(simulator, "ProcessPoolExecutor", Here)
    drawn: list[int] = []

    def draw(seed: int, count: int) -> list[Scenario]:
        drawn.append(seed)
        return draw_many(seed, 1)

    monkeypatch.setattr(simulator, "draw_many", draw)
    report = simulator.run(Options(quick=True, only=("hybridrt", "paper")))
    assert not {*drawn} & {*HOLDOUT}, "only a full run, which is kept, may look at these"
    assert "tuned on these seeds" in report.text
    assert "| hybridrt" in report.text
    assert "| paper" in report.text
    assert all(math.isfinite(one["worst"]) for one in report.data["summary"].values())


def test_a_filter_that_matches_no_sizer_lists_them() -> None:
    with pytest.raises(ValueError, match="hybridrt"):
        simulator.run(Options(only=("nobody",)))
