"""What a runtime has done in each isolate before its first call: an initializer that runs once, or fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hybridrt import IsolateInitializerError, Offloaded, OffloadTimeoutError, Runtime, offload
from hybridrt.isolates import isolate_pool
from hybridrt.isolates.setup import DEFAULT_SETUP
from hybridrt.values import Isolation

from . import far
from .support import FarGate

slow = pytest.mark.slow  # each starts isolates of its own


def isolated(fn: Callable[..., Any], isolation: Isolation, **options: Any) -> Offloaded[..., Any]:
    return offload(fn, pure=True, where="isolate", isolation=isolation, **options)


@asynccontextmanager
async def runtime(initializer: Any, *args: Any, **options: Any) -> AsyncIterator[Runtime]:
    async with Runtime(isolate_initializer=initializer, isolate_initargs=args, **options) as opened:
        yield opened


@slow
@pytest.mark.usefixtures("one_at_a_time")
async def test_it_runs_once_before_the_first_call_of_an_isolate(isolation: Isolation) -> None:
    async with runtime(far.prepare, "a", 1):
        for _ in range(3):
            assert await isolated(far.prepared, isolation)() == [("a", 1)]


@slow
async def test_each_isolate_has_its_own(isolation: Isolation, far_gate: FarGate) -> None:
    if isolate_pool.processes.limiter.limit < 2:
        pytest.skip("one isolate at a time")
    async with runtime(far.prepare, "a"):
        held = far_gate.push(None, far.hold_prepared, isolation=isolation)
        await far_gate.entered()
        assert await isolated(far.prepared, isolation)() == [("a",)]
        await far_gate.release()
        assert await held == [("a",)]


@slow
@pytest.mark.usefixtures("one_at_a_time")
async def test_isolates_of_one_runtime_are_not_lent_to_another(isolation: Isolation) -> None:
    async with runtime(far.prepare, "here"):
        fn = isolated(far.prepared, isolation)
        assert await fn() == [("here",)]

        async def elsewhere() -> Any:
            async with runtime(far.prepare, "there"):
                return await fn()

        assert await asyncio.to_thread(asyncio.run, elsewhere()) == [("there",)]
        assert await fn() == [("here",)]
        assert len(isolate_pool.processes.isolates()) <= 1


@slow
@pytest.mark.usefixtures("one_at_a_time")
async def test_one_that_raises_fails_the_call_and_after_three_isolates_is_not_run_again(
    isolation: Isolation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ran = tmp_path / "ran"
    async with runtime(far.fail_to_prepare, str(ran)):
        for _ in range(5):
            with pytest.raises(IsolateInitializerError, match="far:fail_to_prepare ") as caught:
                await isolated(far.prepared, isolation)()
            assert not caught.value.started
    assert ran.read_text() == "xxx"
    assert "is not run again" in str(caught.value)
    assert caplog.text.count("ValueError: nothing to prepare") >= 3


@slow
@pytest.mark.usefixtures("one_at_a_time")
async def test_what_it_raised_is_the_cause_with_its_line(isolation: Isolation, tmp_path: Path) -> None:
    async with runtime(far.fail_to_prepare, str(tmp_path / "ran")):
        with pytest.raises(IsolateInitializerError, match="nothing to prepare") as caught:
            await isolated(far.prepared, isolation)()
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert cause.__traceback__ is not None
    assert cause.__traceback__.tb_frame.f_code.co_name == "fail_to_prepare"


@slow
@pytest.mark.usefixtures("one_at_a_time")
async def test_one_that_ends_its_process_fails_the_call() -> None:
    async with runtime(far.end, 5):
        with pytest.raises(IsolateInitializerError, match=r"far:end ended its isolate: .*exit code 5"):
            await isolated(far.prepared, "process")()


@slow
async def test_under_auto_the_call_of_one_that_fails_goes_to_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fn = offload(far.pid, pure=True, isolation="process")
    monkeypatch.setattr(fn._router, "choose", lambda size_class: "isolate")
    async with runtime(far.fail_to_prepare, str(tmp_path / "ran")):
        assert await fn() == far.pid()


@slow
async def test_a_timeout_ends_the_isolate_of_one_that_does_not_return(far_gate: FarGate) -> None:
    async with runtime(far.hold, far_gate._entered, far_gate._release):
        held = far_gate.push(fn=far.echo)
        await far_gate.entered()
        held.expire(0.5)
        with pytest.raises(OffloadTimeoutError):
            await held


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"isolate_initializer": 5}, TypeError, "isolate_initializer must be a synchronous callable or None"),
        ({"isolate_initializer": asyncio.sleep}, TypeError, "must be a synchronous callable"),
        (
            {"isolate_initializer": lambda: None},
            ValueError,
            "it is a lambda; define it at the top level of a module that can be imported$",
        ),
        ({"isolate_initializer": threading.Lock().acquire}, ValueError, "cannot be pickled"),
        ({"isolate_initargs": (1,)}, ValueError, "isolate_initargs needs an isolate_initializer"),
        ({"isolate_initializer": far.prepare, "isolate_initargs": [1]}, TypeError, "must be a tuple"),
        (
            {"isolate_initializer": far.prepare, "isolate_initargs": (1, threading.Lock())},
            ValueError,
            r"isolate_initargs\[1\] is a lock and cannot be carried",
        ),
        ({"isolate_logging": 1}, TypeError, "isolate_logging must be True or False"),
    ],
)
def test_a_bad_one_is_refused_at_construction(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        Runtime(**options)


def test_a_runtime_that_asks_for_nothing_shares_its_isolates() -> None:
    assert Runtime()._setup is None
    assert DEFAULT_SETUP.failures == 0
