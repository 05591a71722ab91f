"""A recording of windows replays to the same sizes, also after it was stored."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulator.drive import Governed, simulate
from benchmarks.simulator.scenarios import NAMED
from hybridrt.control.demand import DemandPolicy
from hybridrt.control.paper import PaperPolicy
from hybridrt.control.replay import Recording, replay
from hybridrt.control.throughput import ThroughputPolicy
from hybridrt.control.window import Limits, Policy, State, Window

from .windows import LIMITS, limits, windows

POLICIES: tuple[Policy, ...] = (DemandPolicy(), PaperPolicy(), ThroughputPolicy())


@pytest.mark.parametrize("policy", POLICIES)
@given(bounds=limits(), seen=st.lists(windows, max_size=30))
def test_the_same_windows_give_the_same_states(policy: Policy, bounds: Limits, seen: list[Window]) -> None:
    assert replay(policy, bounds, seen) == replay(policy, bounds, seen)


@pytest.mark.parametrize("policy", POLICIES)
@given(bounds=limits(), seen=st.lists(windows, min_size=1, max_size=30), data=st.data())
def test_a_stored_recording_goes_on_where_it_was_cut(
    policy: Policy, bounds: Limits, seen: list[Window], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(seen)))
    whole = replay(policy, bounds, seen)
    rest = Recording(limits=bounds, windows=seen[cut:], start=whole[cut - 1])
    stored = Recording.from_dict(json.loads(json.dumps(rest.to_dict())))
    assert stored.replay(policy) == whole[cut:]


def test_a_recording_without_a_state_starts_as_the_policy_does() -> None:
    recording = Recording.from_dict(Recording(limits=LIMITS, windows=()).to_dict())
    assert recording.start is None
    assert recording.replay(DemandPolicy()) == []


def test_the_windows_of_a_run_replay_to_its_sizes() -> None:
    run = simulate(NAMED[0], Governed(DemandPolicy()), 1, until=2.0, keep_windows=True)
    states = replay(DemandPolicy(), run.limits, run.windows)
    assert [state.workers for state in states] == [tick.size for tick in run.ticks]
    assert [state.reason for state in states] == [tick.reason for tick in run.ticks]


def test_a_recording_with_inputs_that_windows_no_longer_have_can_be_replayed() -> None:
    window = {"seconds": 0.5, "queued": 3, "running": 4, "completed": 5, "wall": 1.0, "cpu": 0.1}
    limits = {"lowest": 1, "highest": 256}
    old, new = (
        {"limits": limits, "windows": [one], "start": None} for one in (window | {"head_age": 7.0}, window)
    )
    assert Recording.from_dict(old) == Recording.from_dict(new)


def test_a_recorded_run_at_a_full_disk_decides_as_it_did_then() -> None:
    """A change of the law changes this; record anew, and read what has become different.

    That run began with eight threads.
    """
    recorded = json.loads((Path(__file__).parent / "data" / "full_disk.json").read_text(encoding="utf-8"))
    states = Recording.from_dict(recorded).replay(DemandPolicy(first=8))
    assert [[state.workers, state.reason] for state in states] == recorded["decided"]


def test_a_state_that_only_the_user_knows_is_not_loaded_as_another() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Own(State):
        seen: int = 0

    told = Recording(limits=LIMITS, windows=(), start=Own(workers=3, seen=5)).to_dict()
    with pytest.raises(ValueError, match="policy of your own, with seen: load it yourself"):
        Recording.from_dict(told)
