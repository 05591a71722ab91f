"""Hooks: what a user may watch, what they never see, and what becomes of those that raise."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from hybridrt import CallEvent, Hooks

from .conftest import Make
from .support import DEADLINE, Meeting, until


class Events:
    """Collects events."""

    def __init__(self) -> None:
        self.events: list[CallEvent] = []
        self.threads: list[str] = []

    def __call__(self, event: CallEvent) -> None:
        self.events.append(event)
        self.threads.append(threading.current_thread().name)

    def kinds(self, name: str) -> list[str]:
        return [event.kind for event in self.events if event.name.endswith(name)]


def secretive(password: str) -> str:
    return f"secret {password}"


def fails(password: str) -> None:
    raise ValueError(password)


def test_the_events_of_a_call_come_in_order(make: Make) -> None:
    events = Events()
    executor = make(hooks=Hooks(on_event=events))
    executor.submit(secretive, "hunter2").result(DEADLINE)
    until(lambda: len(events.events) == 3, "all three events")
    assert events.kinds("secretive") == ["submitted", "started", "finished"]
    times = [event.at_ns for event in events.events]
    assert times == sorted(times)
    assert len({event.id for event in events.events}) == 1


def test_an_event_has_its_times_and_no_more_than_is_known(make: Make, meeting: Meeting) -> None:
    events = Events()
    executor = make(1, hooks=Hooks(on_event=events))
    future = executor.submit(meeting)
    meeting.wait_for(1)
    by_kind = {event.kind: event for event in events.events}
    assert by_kind["submitted"].queue_wait is None
    assert (by_kind["started"].wall, by_kind["started"].cpu) == (None, None)
    assert by_kind["started"].queue_wait is not None
    meeting.end()
    future.result(DEADLINE)
    until(lambda: len(events.events) == 3, "the last event")
    finished = events.events[-1]
    assert finished.kind == "finished"
    assert finished.wall is not None
    assert finished.wall > 0.0
    assert finished.cpu is not None
    assert finished.error is None


def test_no_event_shows_arguments_results_or_what_an_error_says(make: Make) -> None:
    events = Events()
    executor = make(hooks=Hooks(on_event=events))
    executor.submit(secretive, "hunter2").result(DEADLINE)
    executor.submit(fails, "hunter2").exception(DEADLINE)
    until(lambda: len(events.events) == 6, "all events")
    assert "hunter2" not in repr(events.events)
    assert "secret " not in repr(events.events)
    assert [event.error for event in events.events if event.kind == "finished"] == [None, "ValueError"]


def test_calls_that_go_in_a_batch_have_events_of_their_own(make: Make) -> None:
    events = Events()
    executor = make(hooks=Hooks(on_event=events))
    futures = [executor.submit(abs, number) for number in range(500)]
    assert [future.result(DEADLINE) for future in futures] == list(range(500))
    until(lambda: len(events.events) == 1500, "all events")
    kinds = events.kinds("abs")
    assert (kinds.count("submitted"), kinds.count("started"), kinds.count("finished")) == (500, 500, 500)


def test_a_refused_call_has_a_first_event_and_a_last_one(make: Make, meeting: Meeting) -> None:
    events = Events()
    executor = make(1, queue_max=1, hooks=Hooks(on_event=events))
    executor.submit(meeting)
    meeting.wait_for(1)
    executor.submit(len, "ab")
    with pytest.raises(Exception, match="queue_max"):
        executor.submit(abs, 1)
    assert events.kinds("abs") == ["submitted", "rejected"]
    assert events.events[-1].error == "QueueFullError"


@pytest.mark.parametrize("name", ["on_event", "on_thread_start", "on_thread_stop"])
def test_a_hook_that_raises_is_logged_once_removed_and_hurts_nobody(
    make: Make, caplog: pytest.LogCaptureFixture, name: str, meeting: Meeting
) -> None:
    calls = 0

    def broken(*_: Any) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("broken hook")

    executor = make(4, policy="paper", hooks=Hooks(**{name: broken}))
    futures = [executor.submit(meeting, number) for number in range(3)]
    meeting.wait_for(3)
    meeting.end()
    assert [future.result(DEADLINE) for future in futures] == [0, 1, 2]
    executor.shutdown()
    assert caplog.text.count(f"the hook {name} raised and was removed") >= 1
    # Threads that were in the hook together may all have met it before it was gone.
    assert executor._pool.hooks.removed == calls <= 3
    assert getattr(executor._pool.hooks, name) is None


def test_a_hook_that_raises_does_not_take_the_others_with_it(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="hybridrt")
    started: list[str] = []

    def broken(_: CallEvent) -> None:
        raise RuntimeError("broken hook")

    hooks = Hooks(on_event=broken, on_thread_start=lambda: started.append("started"))
    executor = make(hooks=hooks)
    assert executor.submit(len, "ab").result(DEADLINE) == 2
    assert started == ["started"]


def test_hooks_run_without_the_lock(make: Make) -> None:
    """A hook may ask for the statistics, and even submit."""
    seen: list[int] = []

    def curious(event: CallEvent) -> None:
        seen.append(executor.statistics().submitted)

    executor = make(hooks=Hooks(on_event=curious))
    assert executor.submit(len, "ab").result(DEADLINE) == 2
    until(lambda: len(seen) == 3, "all three events")


async def tell(event: CallEvent) -> None: ...


class Asynchronous:
    async def __call__(self, event: CallEvent) -> None: ...


@pytest.mark.parametrize("hook", [5, "print", tell, Asynchronous()])
@pytest.mark.parametrize("name", ["on_thread_start", "on_thread_stop", "on_event"])
def test_a_hook_that_cannot_be_called_is_refused_at_once(name: str, hook: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a synchronous function or None, got "):
        Hooks(**{name: hook})
