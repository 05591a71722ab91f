"""Records of `logging` that are made in an isolate, on their way to the handlers of this interpreter.

They go the way of the answers, ahead of the answer to their call, so the parent has handled them before the
call returns, in the order in which they were made. They are sent while a call runs, by the thread that runs
it, because only then does the parent read. What other threads log, and what is logged between two calls,
comes ahead of the next answer.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from hybridrt.isolates.packing import pack
from hybridrt.isolates.wire import Wire, WireClosedError

__all__ = ["RECORDS", "RecordSender", "attach_sender", "handle_records", "logger_levels"]

RECORDS = 6
"""What a message says that holds records, and is no answer; those of answers are in `child`."""
_WAITING_MAX = 1_000
"""Records that wait in an isolate; more are dropped and counted. Not measured."""
_AT_ONCE = 100
"""Records in one message."""
_PLAIN = frozenset({str, int, float, bool, type(None)})
_FORMATTER = logging.Formatter()
_senders: list[RecordSender] = []


class RecordSender(logging.Handler):
    """Sends what is logged in this isolate.

    Attributes:
        live: A call runs, so the thread that runs it may send at once.
        waiting: What has not been sent.

    Args:
        wire: Of this isolate; used by the thread that makes the sender alone.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.live = False
        self.waiting = deque[dict[str, Any]]()
        self._wire = wire
        self._thread = threading.get_ident()
        self._sending = False
        self._lost = 0
        _senders[:] = [self]

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, or let it wait."""
        try:
            if len(self.waiting) < _WAITING_MAX:
                self.waiting.append(_take_apart(record))
            else:
                self._lost += 1
        except Exception:
            self.handleError(record)
        if self.live and threading.get_ident() == self._thread:
            self.send_waiting()

    def send_waiting(self) -> None:
        """Send what waits. A finalizer that logs meanwhile only adds to it."""
        if self._sending:
            return
        self._sending = True
        try:
            while self.waiting:
                count = min(len(self.waiting), _AT_ONCE)
                self._wire.send(pack([self.waiting.popleft() for _ in range(count)]), RECORDS)
            if self._lost:
                lost, self._lost = self._lost, 0
                text = f"{lost} records of an isolate were dropped: more than {_WAITING_MAX} waited"
                fields = {"name": "hybridrt", "levelno": logging.WARNING, "levelname": "WARNING", "msg": text}
                self._wire.send(pack([fields]), RECORDS)
        except WireClosedError:  # the parent is gone, or has given the call up
            self.waiting.clear()
        finally:
            self._sending = False


def _take_apart(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a record with its message formatted; what is not built in becomes text."""
    level = int(record.levelno)  # a program's own levels may be of a type that is not built in
    fields = dict(vars(record), msg=record.getMessage(), args=None, exc_info=None, levelno=level)
    if record.exc_info and not record.exc_text:
        fields["exc_text"] = _FORMATTER.formatException(record.exc_info)
    return {name: value if type(value) in _PLAIN else str(value) for name, value in fields.items()}


def attach_sender(levels: Mapping[str, int], disabled: int) -> None:
    """Have what is logged in this isolate sent, by the levels that hold in the parent."""
    for sender in _senders:
        logging.getLogger().addHandler(sender)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.disable(disabled)


def logger_levels() -> dict[str, int]:
    """Return the levels that were set here, by the names of their loggers."""
    root = logging.getLogger()
    loggers = list(root.manager.loggerDict.items())
    set_ones = [(name, each) for name, each in loggers if isinstance(each, logging.Logger) and each.level]
    return {"root": int(root.level), **{name: int(each.level) for name, each in set_ones}}


def handle_records(records: Iterable[dict[str, Any]]) -> None:
    """Give records of an isolate to the loggers of their names, as far as their levels let them pass."""
    for fields in records:
        with suppress(Exception):  # of a filter; handlers see to their own
            record = logging.makeLogRecord(fields)
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
