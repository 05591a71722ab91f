"""What of a caller's context reaches an isolate: chosen variables, and OpenTelemetry's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar, copy_context
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider

from hybridrt import NotPortableError, Runtime, offload
from hybridrt.integrations import opentelemetry
from hybridrt.isolates.context import crossing_context
from hybridrt.values import Isolation

from . import far

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_at_a_time")]  # runtimes of their own


def isolated(fn: Any, isolation: Isolation) -> Any:
    return offload(fn, pure=True, where="isolate", isolation=isolation)


async def test_a_chosen_variable_has_its_value_of_each_call(isolation: Isolation) -> None:
    async with Runtime(isolate_context=[far.seen]):
        fn = isolated(far.seen_in_context, isolation)
        found = [await fn()]
        for value in ("first", "second"):
            token = far.seen.set(value)
            found.append(await fn())
            far.seen.reset(token)
        found.append(await fn())
    assert found == ["nothing", "first", "second", "nothing"]


async def test_without_being_chosen_it_does_not_cross(isolation: Isolation) -> None:
    far.seen.set("not over there")
    async with Runtime():
        assert await isolated(far.seen_in_context, isolation)() == "nothing"


async def test_a_change_over_there_does_not_come_back_and_does_not_stay(isolation: Isolation) -> None:
    far.seen.set("first")
    async with Runtime(isolate_context=(far.seen,)):
        assert await isolated(far.change_context, isolation)("changed") == "first"
        assert far.seen.get() == "first"
        assert await isolated(far.seen_in_context, isolation)() == "first"


async def test_calls_by_the_dozen_each_have_their_own(isolation: Isolation) -> None:
    async with Runtime(isolate_context=[far.seen]) as runtime:
        fn = isolated(far.seen_in_context, isolation)

        async def call(number: int) -> str:
            far.seen.set(str(number))
            return str(await fn())

        assert await runtime.map(call, range(30)) == [str(number) for number in range(30)]


async def test_a_value_that_cannot_be_pickled_is_told(isolation: Isolation) -> None:
    far.seen.set(threading.Lock())  # type: ignore[arg-type]
    async with Runtime(isolate_context=[far.seen]):
        with pytest.raises(NotPortableError, match=r"context variable 'seen' .*lock"):
            await isolated(far.seen_in_context, isolation)()


async def test_a_variable_whose_module_is_missing_there_is_told(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = ModuleType("only_here")
    module.tenant = ContextVar("tenant")
    monkeypatch.setitem(sys.modules, "only_here", module)
    module.tenant.set("seven")
    async with Runtime(isolate_context=[module.tenant]):
        with pytest.raises(NotPortableError, match="No module named 'only_here'") as caught:
            await isolated(far.pid, isolation)()
    assert not caught.value.started


async def test_the_frames_of_an_exception_are_those_of_the_function_alone(isolation: Isolation) -> None:
    far.seen.set("set")
    async with Runtime(isolate_context=[far.seen]):
        with pytest.raises(ZeroDivisionError) as caught:
            await isolated(far.divide, isolation)(0.0)
    assert "hybridrt" not in str(caught.value.__cause__)


def test_a_variable_without_a_name_is_refused_at_construction() -> None:
    with pytest.raises(ValueError, match=r"isolate_context has .*'nameless'.*top level of a module"):
        Runtime(isolate_context=[ContextVar("nameless")])


@pytest.mark.parametrize("given", ["seen", [5], 5])
def test_what_is_no_variable_is_refused_at_construction(given: Any) -> None:
    with pytest.raises(TypeError, match="isolate_context must"):
        Runtime(isolate_context=given)


# ---------------------------------------------------------------------- OpenTelemetry


@pytest.fixture
def tracer() -> Iterator[trace.Tracer]:
    provider = TracerProvider()
    yield provider.get_tracer("tests")
    provider.shutdown()


async def test_a_span_made_in_an_isolate_is_a_child_of_the_callers(
    isolation: Isolation, tracer: trace.Tracer
) -> None:
    async with Runtime(isolate_initializer=far.start_tracing):
        fn = isolated(far.make_span, isolation)
        for _ in range(2):
            with tracer.start_as_current_span("request") as span:
                found = await fn()
            assert found == (span.get_span_context().trace_id, span.get_span_context().span_id)


async def test_baggage_crosses_and_leaves_nothing_behind(isolation: Isolation) -> None:
    async with Runtime():
        token = context.attach(baggage.set_baggage("tenant", "seven"))
        assert await isolated(far.read_baggage, isolation)() == {"tenant": "seven"}
        context.detach(token)
        assert await isolated(far.read_baggage, isolation)() == {}


def test_without_a_span_nothing_crosses() -> None:
    assert not opentelemetry.is_active()
    assert crossing_context(()) is None


def test_half_imported_it_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(opentelemetry.sys.modules, "opentelemetry.context", type(opentelemetry)("half"))  # type: ignore[attr-defined]
    assert not opentelemetry.is_active()


def test_a_propagator_that_fails_harms_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(headers: object) -> None:
        raise LookupError

    monkeypatch.setattr("opentelemetry.propagate.inject", fail)
    monkeypatch.setattr("opentelemetry.propagate.extract", fail)
    assert opentelemetry.inject() is None
    copy_context().run(opentelemetry.attach, {})
