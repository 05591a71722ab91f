"""The sizing law in the loop: it sizes a simulated process, whose best size is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator.drive import Governed, Run, simulate
from benchmarks.simulator.scenario import Call, Load, Machine, Scenario, Server, Signals
from benchmarks.simulator.scenarios import TUNING, draw_many
from benchmarks.simulator.score import best_of, score, summarise
from hybridrt.control.demand import DemandPolicy
from hybridrt.control.knee import DemandState, Trial
from hybridrt.control.window import Limits, Window
from hybridrt.values import Reason

from .windows import LIMITS, run_policy

MS = 0.001


def governed(scenario: Scenario, until: float, seed: int = 1) -> Run:
    return simulate(scenario, Governed(DemandPolicy()), seed, until=until)


def clients(count: int, call: Call, *, server: Server | None = None, beside: int = 0) -> Scenario:
    load = Load(calls=(call,), clients=count, server=server)
    machine = Machine(spinners=beside, switch_interval=0.1 * MS if beside else 0.5 * MS)
    return Scenario("clients", (load,), machine=machine, seconds=600.0)


WAITS = Call(wait=50 * MS, gil=0.05 * MS, spread=0.2)
DISK = clients(60, Call(served=50 * MS, gil=0.2 * MS), server=Server(servers=8))


def test_pure_waits_reach_nine_tenths_of_the_best_within_a_second_and_a_half() -> None:
    run = governed(clients(100, WAITS), 1.5)
    assert run.throughput(1.0, 1.5) >= 0.9 * run.scenario.optima[0].throughput


def test_an_endless_computing_call_beside_does_not_keep_waiting_calls_from_growing_to_hundreds() -> None:
    assert governed(clients(250, WAITS, beside=1), 1.0).ticks[-1].size >= 200


def test_without_any_optional_signal_pure_waits_grow_as_well() -> None:
    blind = replace(clients(150, WAITS), signals=Signals(gil=False, knee_low=0.0))
    assert governed(blind, 1.0).ticks[-1].size >= 120


def test_calls_that_fill_the_gil_are_held_near_their_knee() -> None:
    full = clients(100, Call(wait=8 * MS, gil=2 * MS))
    run = governed(full, 3.0)
    assert run.sizes(2.5, 3.0)[-1] <= 3 * full.optima[0].knee
    assert run.throughput(2.0, 3.0) >= 0.9 * full.optima[0].throughput
    assert {tick.reason for tick in run.ticks} >= {Reason.SATURATED}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_full_disk_is_held_near_its_knee(seed: int) -> None:
    run = governed(DISK, 20.0, seed)
    knee, most = DISK.optima[0].knee, DISK.optima[0].throughput
    assert max(run.sizes(15.0, 20.0)) <= 3 * knee
    assert run.throughput(10.0, 20.0) >= 0.9 * most


@pytest.mark.slow
def test_ten_minutes_of_the_same_load_do_not_move_the_size() -> None:
    """But for one twentieth of the time, for its trials; now and then one of them misleads."""
    beyond = total = 0
    for seed in range(1, 6):
        run = governed(DISK, 600.0, seed)
        sizes = run.sizes(120.0, 600.0)
        middle = sorted(sizes)[len(sizes) // 2]
        beyond += sum(abs(size - middle) > 0.25 * middle + 1 for size in sizes)
        total += len(sizes)
        assert run.throughput(120.0, 600.0) >= 0.97 * DISK.optima[0].throughput
    assert beyond <= 0.05 * total


@pytest.mark.slow
def test_after_a_quiet_moment_the_knee_is_still_known() -> None:
    call = Call(served=50 * MS, gil=0.2 * MS)
    server = Server(servers=8)
    busy = Load(calls=(call,), rate=400.0, server=server)
    loads = (busy, replace(busy, since=15.0, rate=2.0), replace(busy, since=45.0))
    run = governed(Scenario("twice", loads, seconds=60.0), 50.0, 2)
    learned = run.sizes(14.0, 15.0)[-1]
    assert max(run.sizes(47.0, 50.0)) <= 1.5 * learned


@pytest.mark.slow
def test_random_scenarios_come_close_to_their_optimum() -> None:
    scores = []
    for scenario in draw_many(TUNING[0], 6):
        best = best_of(scenario, 5, 10.0, 20.0)
        run = simulate(scenario, Governed(DemandPolicy()), 5)
        scores.append(score(scenario, run, best, 10.0, 20.0))
    found = summarise(scores)
    assert found.median >= 0.98
    assert found.worst >= 0.75


@settings(max_examples=40, deadline=None)
@given(kept=st.floats(0.3, 0.8), size=st.integers(8, 200), service=st.floats(0.002, 0.05))
def test_fewer_threads_that_cost_a_fifth_of_the_throughput_are_never_kept(
    kept: float, size: int, service: float
) -> None:
    """The loss of an experiment is bounded: by half while it lasts, by a few percent if it is kept."""
    best = size / service
    fewer = max(1, size // 2)
    trial = DemandState(
        workers=fewer, trial=Trial.FEWER, before=size, best=best, alone=service, alone_at=4, patience=4.0
    )
    for state in run_policy(DemandPolicy(), LIMITS, trial, [_window(fewer, kept * best)] * 120):
        if not state.trial:
            assert state.workers > fewer
            return
    pytest.fail("the experiment never ended")


def _window(workers: int, throughput: float) -> Window:
    calls = max(1, round(0.05 * throughput))
    wall = 0.05 * workers
    return Window(
        seconds=0.05, queued=500, running=workers, completed=calls, wall=wall, cpu=0.0, busy=float(workers)
    )


@pytest.mark.parametrize("service", [0.005, 0.05, 0.1])
@pytest.mark.parametrize("wanted", [30, 100, 250])
def test_a_cold_pool_runs_all_that_are_queued_within_a_second_and_a_half(service: float, wanted: int) -> None:
    """No signal but the queue: nothing waits for anything, and `wanted` calls are there all the time."""
    limits, policy = Limits(lowest=1, highest=256), DemandPolicy()
    state, clock = policy.start(limits), 0.0
    while state.workers < wanted:
        done = round(0.05 * state.workers / service) if clock >= service else 0
        busy = Window(
            seconds=0.05,
            queued=wanted - state.workers,
            running=state.workers,
            completed=done,
            wall=done * service,
            cpu=0.0,
            busy=float(state.workers),
        )
        state, clock = policy.decide(limits, state, busy), clock + 0.05
        assert clock <= 1.5
