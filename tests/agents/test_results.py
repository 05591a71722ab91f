"""What the model is told of the value that a tool returns, or of the error that it raises."""

from __future__ import annotations

import array
import asyncio
import json
import math
import signal
import sqlite3
import sys
from datetime import date, datetime
from types import MappingProxyType
from typing import Any

import pytest

import hybridrt
from hybridrt.agents import Done, ToolResult
from tests.agents.server import ModelServer, call, end, text


async def result_of(tool: Any) -> ToolResult:
    """Return what came of a tool; the model hears of it and answers."""
    server = ModelServer([call(tool.__name__, "{}"), end("tool_calls")], [text("Well."), end()])
    async with server.agent(tool) as agent:
        events = [event async for event in agent.stream("Why?")]
    assert isinstance(events[-1], Done)
    (result,) = (event for event in events if isinstance(event, ToolResult))
    assert server.tool_messages()[0]["content"] == result.text
    return result


async def result_of_value(value: Any) -> ToolResult:
    async def find() -> Any:
        return value

    return await result_of(find)


async def exit_on_the_loop() -> None:
    sys.exit("no such file")


def exit_in_a_thread() -> None:
    sys.exit("no such file")


@pytest.mark.parametrize("tool", [exit_on_the_loop, exit_in_a_thread])
async def test_a_tool_that_exits_ends_itself_and_not_the_program(tool: Any) -> None:
    result = await result_of(tool)
    assert result.error == "SystemExit"
    assert json.loads(result.text) == {"error": "SystemExit: no such file"}


def signal_inline() -> None:
    signal.raise_signal(signal.SIGTERM)


async def signal_on_the_loop() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("tool", [signal_on_the_loop, hybridrt.tool(signal_inline, where="inline")])
def test_a_signal_handler_that_exits_within_a_tool_ends_the_program(tool: Any) -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    try:
        with pytest.raises(SystemExit, match="3"):
            asyncio.run(result_of(tool))
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"name": "owl", "image": b"\xff\xfe"}, {"name": "owl", "image": "__4="}),
        (bytearray(b"\xff"), "_w=="),
        (["a\udcffb"], ["a?b"]),
        ({"a\udcffb": {1}}, {"a?b": [1]}),
    ],
)
async def test_bytes_and_file_names_that_are_no_text_reach_the_model(value: Any, told: Any) -> None:
    result = await result_of_value(value)
    assert result.error is None
    assert json.loads(result.text) == told


async def test_bytes_beside_others_that_are_no_text_stay_readable() -> None:
    result = await result_of_value([b"abc", b"\xff"])
    assert json.loads(result.text) == ["abc", "_w=="]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({date(2026, 1, 2): b"\xff"}, {"2026-01-02": "_w=="}),
        ({date(2026, 1, 2): "a\udcffb"}, {"2026-01-02": "a?b"}),
    ],
)
async def test_keys_may_be_dates_beside_what_is_no_text(value: Any, told: Any) -> None:
    result = await result_of_value(value)
    assert result.error is None
    assert json.loads(result.text) == told


async def test_what_has_labels_or_times_is_a_text() -> None:
    class Series:
        dtype = "int64"

        def tolist(self) -> list[int]:
            return [1]

        def to_dict(self) -> dict[str, int]:
            return {"a": 1}

        def __str__(self) -> str:
            return "a 1"

    class Times:
        dtype = "datetime64[ns]"

        def tolist(self) -> list[int]:
            return [1]

        def __str__(self) -> str:
            return "1970-01-01"

    result = await result_of_value([Series(), Times()])
    assert json.loads(result.text) == ["a 1", "1970-01-01"]


class NotATime(datetime):
    """Is a datetime by its type and not by its parts, as NaT of pandas."""

    @property
    def year(self) -> Any:
        return float("nan")

    def __str__(self) -> str:
        return "NaT"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([{"day": NotATime(2026, 1, 2), "total": 3}], [{"day": "NaT", "total": 3}]),
        ({frozenset({1}): 2}, "{frozenset({1}): 2}"),
    ],
)
async def test_what_json_cannot_say_is_a_text_and_no_failure_of_its_tool(value: Any, told: Any) -> None:
    result = await result_of_value(value)
    assert result.error is None
    assert json.loads(result.text) == told


async def test_rows_and_mappings_are_objects() -> None:
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    rows = database.execute("SELECT 7 AS pieces, 'oak' AS kind").fetchall()
    database.close()
    result = await result_of_value([*rows, MappingProxyType({"pieces": 8})])
    assert json.loads(result.text) == [{"pieces": 7, "kind": "oak"}, {"pieces": 8}]


async def test_an_error_that_cannot_say_what_it_is_is_told_by_its_name() -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise LookupError

    async def find() -> None:
        raise UnspeakableError

    result = await result_of(find)
    assert json.loads(result.text) == {"error": "UnspeakableError"}


async def test_the_errors_of_a_group_are_told_each() -> None:
    async def find() -> None:
        raise ExceptionGroup("two errors", [LookupError("no oak"), ExceptionGroup("", [OSError("no disk")])])

    result = await result_of(find)
    assert result.error == "ExceptionGroup"
    assert json.loads(result.text) == {"error": "LookupError: no oak; OSError: no disk"}


async def test_all_the_values_of_an_array_reach_the_model() -> None:
    result = await result_of_value({"scores": array.array("d", range(2000))})
    assert json.loads(result.text) == {"scores": [*range(2000)]}


async def test_a_class_that_could_make_lists_is_a_text() -> None:
    result = await result_of_value([array.array])
    assert json.loads(result.text) == [str(array.array)]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (math.nan, "NaN"),
        (
            {"mean": math.nan, "most": [math.inf, -math.inf, 1.5]},
            {"mean": "NaN", "most": ["Infinity", "-Infinity", 1.5]},
        ),
        (array.array("d", [math.nan, 1.0]), ["NaN", 1.0]),
        ({"mean": math.nan, "image": b"\xff"}, {"mean": "NaN", "image": "_w=="}),
        ({date(2026, 1, 2): [b"\xff", math.inf]}, {"2026-01-02": ["_w==", "Infinity"]}),
    ],
)
async def test_numbers_that_json_does_not_have_are_texts(value: Any, told: Any) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    result = await result_of_value(value)
    assert json.loads(result.text, parse_constant=refuse) == told
