"""The ground: frozen values, errors that say whether the call had started, the clock seam."""

from __future__ import annotations

import pickle
import threading
import time
from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest

from hybridrt import errors, values
from hybridrt.clock import SystemClock
from hybridrt.errors import HybridrtError, OffloadTimeoutError, QueueFullError, RuntimeClosedError
from hybridrt.testing import ManualClock
from hybridrt.values import CallEvent, Kind, LoopDelay, Reason

from .support import compute


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_one_family_and_documented(name: str) -> None:
    error = getattr(errors, name)
    assert issubclass(error, HybridrtError)
    assert error.__doc__


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - {"HybridrtError"}))
def test_every_error_says_whether_the_call_had_started(name: str) -> None:
    text = getattr(errors, name).__doc__
    assert "started" in text or "running" in text


def test_errors_are_what_callers_of_the_standard_library_catch() -> None:
    assert issubclass(OffloadTimeoutError, TimeoutError)
    assert issubclass(RuntimeClosedError, RuntimeError)
    assert not issubclass(QueueFullError, RuntimeError)


@pytest.mark.parametrize("started", [True, False])
def test_a_timeout_tells_whether_the_call_had_started(started: bool) -> None:
    error = OffloadTimeoutError("too late", started=started)
    assert (error.started, str(error)) == (started, "too late")


@pytest.mark.parametrize("name", [name for name in values.__all__ if is_dataclass(getattr(values, name))])
def test_every_value_is_frozen_slotted_and_taken_by_keyword(name: str) -> None:
    value = getattr(values, name)
    assert value.__dataclass_params__.frozen
    assert all(field.kw_only for field in fields(value))
    assert "__slots__" in vars(value)


@pytest.mark.parametrize("name", [name for name in values.__all__ if is_dataclass(getattr(values, name))])
def test_every_field_of_a_value_is_documented_or_says_it_itself(name: str) -> None:
    value = getattr(values, name)
    undocumented = {field.name for field in fields(value)} - set(value.__doc__.replace(":", " ").split())
    assert not undocumented or name == "LoopDelay"


def test_values_travel_between_processes() -> None:
    event = CallEvent(kind="started", id=1, name="module:name", at_ns=2, place="thread", queue_wait=0.5)
    delay = LoopDelay(p50=0.0, p99=0.1, max=0.2, window=60.0)
    assert pickle.loads(pickle.dumps((event, delay))) == (event, delay)
    with pytest.raises(FrozenInstanceError):
        event.name = "other"  # type: ignore[misc]


def test_kinds_and_reasons_are_their_own_names() -> None:
    assert [str(kind) for kind in Kind] == ["unknown", "waiting", "short", "long", "free"]
    assert all(str(reason) == reason.name.lower() for reason in Reason)


# ---------------------------------------------------------------------- clocks


def test_the_system_clock_reads_monotonic_thread_and_process_time() -> None:
    clock = SystemClock()
    wall, cpu, process = clock.wall_ns(), clock.cpu_ns(), clock.process_cpu_ns()
    compute(0.005)
    assert clock.wall_ns() >= wall + 5_000_000
    assert clock.cpu_ns() >= cpu + 5_000_000
    assert clock.process_cpu_ns() >= process + 5_000_000


def test_the_cpu_clock_is_that_of_the_calling_thread() -> None:
    clock, seen = SystemClock(), []
    compute(0.01)
    thread = threading.Thread(target=lambda: seen.append(clock.cpu_ns()))
    thread.start()
    thread.join()
    assert seen[0] < time.thread_time_ns()


def test_a_manual_clock_moves_when_told() -> None:
    clock = ManualClock(now=2.0)
    assert (clock.wall_ns(), clock.cpu_ns(), clock.process_cpu_ns()) == (2_000_000_000, 0, 0)
    clock.advance(0.5, cpu=0.25)
    assert (clock.wall_ns(), clock.cpu_ns(), clock.process_cpu_ns()) == (
        2_500_000_000,
        250_000_000,
        250_000_000,
    )
