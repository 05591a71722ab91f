"""What an exception of an isolate shows: the lines over there, and little of ours."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref
from types import TracebackType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt import offload
from hybridrt.isolates.frames import Position, name_frames, rebuild_frames
from hybridrt.values import Isolation
from tests.loop.support import eventually

from . import far
from .support import run_isolated

pytestmark = pytest.mark.usefixtures("kept", "one_at_a_time", "runtime")


def frames_of(error: BaseException, file: str = far.__file__) -> list[tuple[str, int, str | None]]:
    """Return the frames in a file as an error tracker reads them: name, line and source."""
    found = traceback.extract_tb(error.__traceback__)
    return [(frame.name, frame.lineno or 0, frame.line) for frame in found if frame.filename == file]


def line_of(source: str) -> int:
    """Return the number of the only line with this text."""
    with open(far.__file__, encoding="utf-8") as file:
        (number,) = (number for number, line in enumerate(file, 1) if line.strip() == source)
    return number


DIVE = "return dive(depth - 1) if depth else divide(0.0)"
DIVIDE = "return 1.0 / value"


def expected() -> list[tuple[str, int, str | None]]:
    return [("dive", line_of(DIVE), DIVE)] * 2 + [("divide", line_of(DIVIDE), DIVIDE)]


async def test_an_exception_has_the_frames_of_its_isolate(isolation: Isolation) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        await run_isolated(far.dive, 1, isolation=isolation)
    assert frames_of(caught.value) == expected()
    assert "in dive" in str(caught.value.__cause__)


async def test_the_traceback_shows_the_source_of_these_lines_and_at_most_two_of_ours(
    isolation: Isolation,
) -> None:
    fn = offload(far.dive, pure=True, where="isolate", isolation=isolation)
    with pytest.raises(ZeroDivisionError) as caught:
        await fn(1)
    error = caught.value
    error.__cause__ = None  # its text has them, too
    text = "".join(traceback.format_exception(error))
    assert text.count(DIVE) == 2
    assert text.count(DIVIDE) == 1
    assert "~~~~^~~~~~~" in text
    assert text.count("hybridrt/") <= 2


async def test_a_tracker_finds_line_function_and_module_in_the_frame(isolation: Isolation) -> None:
    with pytest.raises(RuntimeError, match="LocalError") as caught:
        await run_isolated(far.fail_unpicklably, isolation=isolation)
    trace = _last(caught.value.__traceback__)
    code = trace.tb_frame.f_code
    assert trace.tb_lineno == line_of('raise LocalError("from a class that nobody else has")')
    assert (code.co_name, code.co_filename) == ("fail_unpicklably", far.__file__)
    assert code.co_firstlineno == far.fail_unpicklably.__code__.co_firstlineno
    assert trace.tb_frame.f_globals["__name__"] == far.__name__
    assert (trace.tb_frame.f_back, dict(trace.tb_frame.f_locals)) == (None, {})


async def test_of_a_recursion_that_went_too_deep_the_innermost_frames_cross(isolation: Isolation) -> None:
    with pytest.raises(RecursionError) as caught:
        await run_isolated(far.dive, sys.getrecursionlimit(), isolation=isolation)
    assert len(frames_of(caught.value)) == 100


async def test_an_exception_is_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        with pytest.raises(far.Odd) as caught:
            await run_isolated(far.fail_oddly)
        assert frames_of(caught.value)
        freed = weakref.ref(caught.value)
        del caught
        await eventually(lambda: freed() is None)  # the thread that has brought it may still be at it
    finally:
        gc.enable()


def test_nothing_raised_above_the_function_has_no_frames() -> None:
    assert rebuild_frames(name_frames(None)) is None


lines = st.integers(0, 1 << 20)
columns = st.none() | st.integers(-1, 1 << 20)


@given(st.text(max_size=5), st.text(max_size=5), lines, st.tuples(lines, lines, columns, columns))
def test_a_frame_is_rebuilt_as_it_was_or_left_out(
    file: str, name: str, first_line: int, position: Position
) -> None:
    trace = rebuild_frames([(file, name, name, "module", first_line, position)])
    if trace is not None:
        assert (trace.tb_frame.f_code.co_filename, trace.tb_frame.f_code.co_name) == (file, name)
        assert trace.tb_lineno == position[0]


def _last(trace: Any) -> TracebackType:
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace  # type: ignore[no-any-return]
