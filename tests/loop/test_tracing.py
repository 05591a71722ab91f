"""Events of calls are all that a tracer needs: real spans are built of them, by the code of the docs."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybridrt import (
    CallEvent,
    Hooks,
    LaneNestingError,
    OffloadTimeoutError,
    QueueFullError,
    Runtime,
    RuntimeClosedError,
    WorkerLostError,
    offload,
)
from hybridrt.pool.worker import WorkerThread
from hybridrt.testing import InlineRuntime
from tests.isolates import far

from .support import Gate, Timers, eventually, turns

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

DOCS = Path(__file__).parents[2] / "docs" / "tracing.md"


class Tracing:
    """The tracer of the docs, with what it has exported."""

    def __init__(self) -> None:
        code: dict[str, Any] = {}
        exec(DOCS.read_text("utf-8").split("```python\n")[1].split("```")[0], code)
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")
        self.spans: Callable[[CallEvent], None] = code["CallSpans"](self.tracer)
        self.events: list[CallEvent] = []
        self.hooks = Hooks(on_event=self._note)

    def _note(self, event: CallEvent) -> None:
        self.events.append(event)
        self.spans(event)

    def told(self, name: str) -> list[tuple[str, str | None, str | None]]:
        """Return end, error and parent of the spans of a function."""
        spans = self.exporter.get_finished_spans()
        names = {span.context.span_id: span.name for span in spans if span.context is not None}
        return [
            (
                str((span.attributes or {})["hybridrt.end"]),
                span.status.description,
                None if span.parent is None else names.get(span.parent.span_id, "not ended"),
            )
            for span in spans
            if span.name.endswith(name) and self._holds_together(span)
        ]

    def _holds_together(self, span: ReadableSpan) -> bool:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
        return True

    def kinds(self, name: str) -> list[str]:
        return [event.kind for event in self.events if event.name.endswith(name)]

    def places(self) -> set[str]:
        return {event.place for event in self.events}


@pytest.fixture
def tracing() -> Tracing:
    return Tracing()


def fail() -> None:
    raise ValueError("no")


@pytest.mark.parametrize("place", ["thread", "inline"])
async def test_calls_are_children_of_the_span_that_they_were_made_in(tracing: Tracing, place: Any) -> None:
    async with Runtime(hooks=tracing.hooks):
        with tracing.tracer.start_as_current_span("request"):
            assert await offload(len, where=place)("abc") == 3
            with pytest.raises(ValueError, match="no"):
                await offload(fail, where=place)()
        await offload(abs, where=place)(-1)
    assert tracing.told("len") == [("finished", None, "request")]
    assert tracing.told("fail") == [("finished", "ValueError", "request")]
    assert tracing.told("abs") == [("finished", None, None)]
    assert tracing.places() == {place}
    assert tracing.kinds("len") == ["submitted", "started", "finished"]


@pytest.mark.slow
async def test_so_are_calls_in_isolates(tracing: Tracing) -> None:
    def isolated(fn: Any) -> Any:
        return offload(fn, pure=True, where="isolate", isolation="process")

    async with Runtime(hooks=tracing.hooks):
        with tracing.tracer.start_as_current_span("request"):
            assert await isolated(far.add)(1, b=2) == 3
            with pytest.raises(KeyError):
                await isolated(far.fail)(KeyError("no"))
            with pytest.raises(WorkerLostError):
                await isolated(far.end)(3)
    assert tracing.told("add [process]") == [("finished", None, "request")]
    assert tracing.told("fail [process]") == [("finished", "KeyError", "request")]
    assert tracing.told("end [process]") == [("finished", "WorkerLostError", "request")]
    assert tracing.places() == {"isolate"}


async def test_so_are_calls_of_the_testing_runtime(tracing: Tracing) -> None:
    async with InlineRuntime(hooks=tracing.hooks):
        with tracing.tracer.start_as_current_span("request"):
            assert await offload(len)("abc") == 3
    assert tracing.told("len") == [("finished", None, "request")]
    assert tracing.places() == {"inline"}


async def test_so_are_calls_of_to_thread(tracing: Tracing) -> None:
    async with Runtime(hooks=tracing.hooks):
        with tracing.tracer.start_as_current_span("request"):
            assert await asyncio.to_thread(len, "abc") == 3
        await eventually(lambda: len(tracing.events) == 3)
    (told,) = tracing.told("len")
    assert told == ("finished", None, "request")


async def test_a_call_cancelled_while_queued_ends_there(tracing: Tracing) -> None:
    async with Runtime(max_workers=1, hooks=tracing.hooks) as runtime, Gate() as gate:
        held = asyncio.ensure_future(runtime.offload(gate))
        await gate.entered()
        task = asyncio.ensure_future(runtime.offload(len, "abc"))
        await turns()
        task.cancel()
        await asyncio.wait({task})
        assert tracing.told("len") == [("withdrawn", "CancelledError", None)]
        gate.release()
        await held
    assert tracing.kinds("len") == ["submitted", "withdrawn"]


@pytest.mark.parametrize("abandon", [False, True])
async def test_a_call_cancelled_while_it_runs_ends_when_its_thread_is_done(
    tracing: Tracing, abandon: bool
) -> None:
    async with Runtime(hooks=tracing.hooks), Gate() as gate:
        task = asyncio.ensure_future(offload(gate, abandon_on_cancel=abandon)())
        await gate.entered()
        task.cancel()
        await turns()
        assert task.done() is abandon
        assert len(tracing.told("Gate")) == 0
        gate.release()
        await asyncio.wait({task})
        await eventually(lambda: tracing.events[-1].kind == "finished")
    (finished,) = [event for event in tracing.events if event.kind == "finished"]
    assert (finished.cancel_requested, finished.error) == (True, None)
    between = ["abandoned"] if abandon else []
    assert [event.kind for event in tracing.events] == ["submitted", "started", *between, "finished"]


async def test_a_call_that_is_too_late_to_start_ends_with_its_timeout(
    tracing: Tracing, timers: Timers
) -> None:
    async with Runtime(max_workers=1, hooks=tracing.hooks) as runtime, Gate() as gate:
        held = asyncio.ensure_future(runtime.offload(gate))
        await gate.entered()
        late = [offload(len, timeout=5)("abc"), offload(len, queue_timeout=5)("abc")]
        tasks = [asyncio.ensure_future(call) for call in late]
        await turns()
        timers.fire()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in errors] == [OffloadTimeoutError] * 2
        assert tracing.told("len") == [("withdrawn", "OffloadTimeoutError", None)] * 2
        gate.release()
        await held


async def test_a_call_that_runs_on_after_its_timeout_is_abandoned(tracing: Tracing, timers: Timers) -> None:
    async with Runtime(hooks=tracing.hooks), Gate() as gate:
        task = asyncio.ensure_future(offload(gate, timeout=5)())
        await gate.entered()
        timers.fire()
        with pytest.raises(OffloadTimeoutError):
            await task
        assert tracing.events[-1].kind == "abandoned"
        assert tracing.events[-1].error == "OffloadTimeoutError"
        gate.release()
        await eventually(lambda: tracing.events[-1].kind == "finished")


async def test_a_call_that_the_queue_has_no_room_for_ends_at_once(tracing: Tracing) -> None:
    async with Runtime(max_workers=1, queue_max=1, hooks=tracing.hooks) as runtime, Gate() as gate:
        held = asyncio.ensure_future(runtime.offload(gate))
        await gate.entered()
        queued = runtime.executor.submit(abs, -1)
        with tracing.tracer.start_as_current_span("request"), pytest.raises(QueueFullError):
            runtime.executor.submit(len, "abc")
        assert tracing.told("len") == [("rejected", "QueueFullError", "request")]
        gate.release()
        await held
        await asyncio.wrap_future(queued)


async def test_a_call_that_nests_in_its_lane_ends_with_that(tracing: Tracing) -> None:
    async with Runtime(hooks=tracing.hooks):
        loop = asyncio.get_running_loop()
        inner = offload(len, lane="traced")

        def outer() -> int:
            return asyncio.run_coroutine_threadsafe(inner("abc"), loop).result()

        with pytest.raises(LaneNestingError):
            await offload(outer, lane="traced")()
    assert tracing.told("len")[0][:2] == ("withdrawn", "LaneNestingError")


@pytest.mark.usefixtures("quiet_thread")
async def test_a_call_whose_worker_dies_ends_with_that(
    tracing: Tracing, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = WorkerThread._execute

    def dies(worker: WorkerThread, call: Any) -> None:
        monkeypatch.setattr(WorkerThread, "_execute", execute)
        raise MemoryError

    monkeypatch.setattr(WorkerThread, "_execute", dies)
    async with Runtime(hooks=tracing.hooks):
        with pytest.raises(WorkerLostError):
            await offload(len)("abc")
    assert tracing.told("len") == [("finished", "WorkerLostError", None)]


async def test_calls_of_a_runtime_that_closes_end_with_that(tracing: Tracing) -> None:
    runtime = Runtime(max_workers=1, shutdown_timeout=0, hooks=tracing.hooks)
    async with runtime, Gate() as gate:
        running = asyncio.ensure_future(runtime.offload(gate))
        await gate.entered()
        queued = asyncio.ensure_future(runtime.offload(len, "abc"))
        await turns()
        await runtime.aclose()
        errors = await asyncio.gather(running, queued, return_exceptions=True)
        assert [type(error) for error in errors] == [RuntimeClosedError] * 2
        assert tracing.told("len") == [("withdrawn", "RuntimeClosedError", None)]
        assert tracing.events[-1].kind in ("abandoned", "withdrawn")
        gate.release()
        await eventually(lambda: tracing.events[-1].kind == "finished")


@pytest.mark.race
async def test_every_call_has_one_first_and_one_last_event() -> None:
    tracing = Tracing()
    async with Runtime(max_workers=3, hooks=tracing.hooks) as runtime:
        pause = threading.Event()
        calls = [runtime.offload(pause.wait, 0.0002) if n % 3 else runtime.offload(abs, n) for n in range(40)]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        for task in tasks[::4]:
            task.cancel()
        await asyncio.wait(tasks)
    by_id: dict[int, list[str]] = defaultdict(list)
    for event in tracing.events:
        by_id[event.id].append(event.kind)
    assert len(by_id) == 40
    for kinds in by_id.values():
        assert kinds in (["submitted", "started", "finished"], ["submitted", "withdrawn"])
