"""Records of `logging` from isolates: by name, level and message to the handlers here, in order."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hybridrt import Runtime, offload
from hybridrt.isolates import records
from hybridrt.isolates.records import RECORDS, RecordSender, handle_records
from hybridrt.isolates.setup import Setup
from hybridrt.isolates.wire import Wire
from hybridrt.values import Isolation
from tests.loop.support import eventually

from . import far
from .support import FarGate, run_isolated

pytestmark = [
    pytest.mark.slow,  # isolates take the levels of the loggers here as they start
    pytest.mark.usefixtures("one_at_a_time"),
]


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Hear what loggers named `far` say, from INFO on."""
    with caplog.at_level(logging.INFO, logger="far"):
        yield caplog


@pytest.mark.usefixtures("runtime")
async def test_a_record_has_its_loggers_name_its_level_and_its_message(
    isolation: Isolation, heard: pytest.LogCaptureFixture
) -> None:
    await run_isolated(far.log, "far.away", logging.INFO, "seen %s of %d", "two", 3, isolation=isolation)
    (record,) = heard.records
    assert (record.name, record.levelno, record.levelname) == ("far.away", logging.INFO, "INFO")
    assert record.getMessage() == "seen two of 3"
    assert (record.funcName, record.filename) == ("log", "far.py")
    assert record.created > 0


@pytest.mark.usefixtures("runtime")
async def test_levels_of_a_programs_own_type_hold_and_arrive(
    isolation: Isolation, heard: pytest.LogCaptureFixture
) -> None:
    levels: list[Any] = [far.Level.NOTICE, logging.INFO]
    logging.getLogger("far.own").setLevel(levels[0])
    try:
        for level in levels:
            await run_isolated(far.log, "far.own", level, "seen", isolation=isolation)
    finally:
        logging.getLogger("far.own").setLevel(logging.NOTSET)
    assert [(record.levelno, type(record.levelno)) for record in heard.records] == [(25, int)]


@pytest.mark.usefixtures("runtime")
async def test_the_traceback_of_an_exception_comes_as_text(
    isolation: Isolation, heard: pytest.LogCaptureFixture
) -> None:
    await run_isolated(far.log_exception, isolation=isolation)
    (record,) = heard.records
    assert record.exc_text is not None
    assert "in divide\n" in record.exc_text
    assert "ZeroDivisionError" in logging.Formatter().format(record)


@pytest.mark.usefixtures("runtime")
async def test_what_is_not_built_in_arrives_as_text(heard: pytest.LogCaptureFixture) -> None:
    await run_isolated(far.log_extra)
    (record,) = heard.records
    assert (record.number, record.shape) == (7, "<a shape>")  # type: ignore[attr-defined]


@pytest.mark.usefixtures("runtime")
async def test_records_are_there_when_the_call_returns_in_their_order(
    isolation: Isolation, heard: pytest.LogCaptureFixture
) -> None:
    for start in range(0, 30, 10):
        await run_isolated(far.log_numbers, start, 10, isolation=isolation)
    assert [int(record.getMessage()) for record in heard.records] == list(range(30))


@pytest.mark.usefixtures("runtime")
async def test_a_record_is_heard_while_its_call_runs(
    isolation: Isolation, heard: pytest.LogCaptureFixture, far_gate: FarGate
) -> None:
    held = far_gate.push(fn=far.log_and_hold, isolation=isolation)
    await far_gate.entered()
    await eventually(lambda: [record.getMessage() for record in heard.records] == ["in the middle"])
    assert not held.done()
    await far_gate.release()
    await held


@pytest.mark.usefixtures("runtime")
async def test_levels_hold_as_they_are_here(isolation: Isolation, heard: pytest.LogCaptureFixture) -> None:
    logging.getLogger("far.quiet").setLevel(logging.ERROR)
    try:
        await run_isolated(far.log, "far.quiet", logging.WARNING, "not heard", isolation=isolation)
        await run_isolated(far.log, "far", logging.DEBUG, "not heard", isolation=isolation)
        assert not heard.records
    finally:
        logging.getLogger("far.quiet").setLevel(logging.NOTSET)


@pytest.mark.usefixtures("runtime")
async def test_what_another_thread_logs_comes_with_the_answer_or_the_next(
    isolation: Isolation, heard: pytest.LogCaptureFixture
) -> None:
    await run_isolated(far.log_in_thread, isolation=isolation)
    assert [record.getMessage() for record in heard.records] == ["from a thread"]


@pytest.mark.usefixtures("runtime")
async def test_a_filter_that_raises_here_harms_no_call(
    isolation: Isolation, heard: pytest.LogCaptureFixture
) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise LookupError

    logging.getLogger("far").addFilter(refuse)
    try:
        assert await run_isolated(far.log, "far", logging.INFO, "filtered", isolation=isolation) is None
    finally:
        logging.getLogger("far").removeFilter(refuse)
    assert not heard.records


async def test_the_initializers_records_come_too(
    isolation: Isolation, heard: pytest.LogCaptureFixture
) -> None:
    async with Runtime(isolate_initializer=far.log_numbers, isolate_initargs=(0, 2)):
        await offload(far.pid, pure=True, where="isolate", isolation=isolation)()
    assert [record.getMessage() for record in heard.records] == ["0", "1"]


async def test_it_can_be_switched_off(isolation: Isolation, heard: pytest.LogCaptureFixture) -> None:
    async with Runtime(isolate_logging=False):
        await offload(far.log, pure=True, where="isolate", isolation=isolation)("far", logging.ERROR, "kept")
    assert not heard.records


# ---------------------------------------------------------------------- the sender


@pytest.fixture
def sender() -> Iterator[tuple[RecordSender, Wire]]:
    here, there = map(Wire, socket.socketpair())
    kept = list(records._senders)
    yield RecordSender(here), there
    records._senders[:] = kept
    here.close()
    there.close()


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("far", logging.INFO, "far.py", 1, text, None, None)


def test_no_more_than_so_many_wait_and_the_others_are_counted(
    sender: tuple[RecordSender, Wire], heard: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_WAITING_MAX", 3)
    for number in range(5):
        sender[0].handle(record(str(number)))
    assert len(sender[0].waiting) == 3
    sender[0].send_waiting()
    for _ in range(2):
        message = sender[1].receive()
        assert message.status == RECORDS
        handle_records(message.value)
    told = [each.getMessage() for each in heard.records]
    assert told == ["0", "1", "2", "2 records of an isolate were dropped: more than 3 waited"]


def test_a_record_is_sent_at_once_while_a_call_runs_but_by_its_own_thread_alone(
    sender: tuple[RecordSender, Wire],
) -> None:
    sender[0].live = True
    with ThreadPoolExecutor(1) as other:
        other.submit(sender[0].handle, record("other")).result()
    assert len(sender[0].waiting) == 1
    sender[0].handle(record("own"))
    assert [fields["msg"] for fields in sender[1].receive().value] == ["other", "own"]


def test_nothing_hangs_or_raises_if_the_parent_is_gone(sender: tuple[RecordSender, Wire]) -> None:
    sender[1].close()
    sender[0].live = True
    sender[0].handle(record("unheard"))
    assert not sender[0].waiting


def test_a_record_made_while_records_are_sent_comes_after_them(
    sender: tuple[RecordSender, Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = sender
    here.live = True
    send = here._wire.send

    def send_and_log(*args: Any) -> None:
        monkeypatch.setattr(here._wire, "send", send)
        here.handle(record("second"))
        send(*args)

    monkeypatch.setattr(here._wire, "send", send_and_log)
    here.handle(record("first"))
    assert [there.receive().value[0]["msg"] for _ in range(2)] == ["first", "second"]


@pytest.mark.race
def test_threads_that_log_beside_a_call_lose_nothing_and_keep_their_order(
    sender: tuple[RecordSender, Wire],
) -> None:
    here, there = sender
    here.live = True
    with ThreadPoolExecutor(3) as others:
        logging_beside = [others.submit(log_ten, here, name) for name in ("a", "b")]
        read = others.submit(lambda: [fields["msg"] for fields in receive(there, 30)])
        log_ten(here, "own")
        for each in logging_beside:
            each.result()
        here.send_waiting()
        found = read.result()
    for name in ("a", "b", "own"):
        assert [text for text in found if text.startswith(name)] == [f"{name}{count}" for count in range(10)]


def log_ten(sender: RecordSender, name: str) -> None:
    for count in range(10):
        sender.handle(record(f"{name}{count}"))


def receive(wire: Wire, many: int) -> list[dict[str, Any]]:
    found = list[dict[str, Any]]()
    while len(found) < many:
        found += wire.receive().value
    return found


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Setup()._forwards
    monkeypatch.setenv("HYBRIDRT_ISOLATE_LOGGING", "0")
    assert not Setup()._forwards
