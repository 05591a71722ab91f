"""What was learned about functions, kept in a file from one run of a program to the next.

`HYBRIDRT_PROFILE=path` names the file, which is read at import and written when the last runtime closes. It
is plain JSON, and bounded: what was met longest ago makes room. A file of another version, of another Python
or of other usable cores is left out with a warning. A function with new code is learned anew.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import Any

from hybridrt.measure.host import usable_cores

__all__ = ["Record", "Remembered", "fingerprint", "load", "remembered"]

logger = logging.getLogger("hybridrt")

FORMAT = 2
"""Changes with what the records mean."""
FUNCTIONS_MAX = 512
BYTES_MAX = 4 << 20
Record = dict[str, Any]
"""What is known about a function, as JSON has it: what each part has put there."""


class Remembered:
    """What a file says, and what this run adds to it.

    Args:
        path: The file; None where nothing is kept.
        records: By the names of the functions and their code.
    """

    def __init__(self, path: Path | None = None, records: Mapping[str, Record] | None = None) -> None:
        self.path = path
        self._records: dict[str, Record] = dict(records or {})
        self._unasked = {each.rpartition("#")[0] for each in self._records}
        self._lock = threading.Lock()

    def of(self, name: str, key: object) -> Record:
        """Return what is known about a function; empty if nothing is.

        Args:
            name: `module:qualname`.
            key: Its code object, or what else its profile is found by.
        """
        record = self._records.get(_id(name, key))
        if name in self._unasked:
            self._unasked.discard(name)
            if record is None:
                logger.warning("%s has other code than in %s; it is learned anew", name, self.path)
        return record or {}

    @property
    def is_empty(self) -> bool:
        """Return True if nothing is known about any function."""
        return not self._records

    def warn(self, name: str, error: Exception) -> None:
        """Say that what the file has of a function cannot be used."""
        logger.warning("what %s says of %s is ignored: %r", self.path, name, error)

    def start_clean(self) -> None:
        """Free the lock in a forked child, where its holder is not."""
        self._lock = threading.Lock()

    def add(self, name: str, key: object, part: str, known: Record) -> None:
        """Keep what one part knows about a function, in the place of what it knew before."""
        met = _id(name, key)
        with self._lock:
            record = self._records.pop(met, {})
            self._records[met] = {**record, part: known}  # at the end: it was met last
            while len(self._records) > FUNCTIONS_MAX:
                del self._records[next(iter(self._records))]

    def _text(self) -> str:
        return json.dumps({**_about(), "functions": self._records}, indent=1)

    def save(self) -> None:
        """Write the file, as a whole or not at all; one that cannot be written is a warning."""
        if self.path is None:
            return
        with self._lock:
            while len(text := self._text()) > BYTES_MAX and len(self._records) > 1:
                for met in [*self._records][: len(self._records) // 2]:  # those met longest ago
                    del self._records[met]
        if len(text) > BYTES_MAX:
            logger.warning(
                "what was learned takes %d bytes, more than %d: it is not kept", len(text), BYTES_MAX
            )
            return
        # Where no other thread writes, nor a process of the same number in another container.
        beside = self.path.with_name(f"{self.path.name}.{os.urandom(4).hex()}.tmp")
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(self.path)
        except OSError as error:
            logger.warning("HYBRIDRT_PROFILE could not be written: %s", error)
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def load(path: str | None) -> Remembered:
    """Return what a file says; nothing, with a warning, if it does not fit."""
    if not path:
        return Remembered()
    file = Path(path).absolute()  # the program may change its folder
    try:
        if file.exists() and not file.is_file():  # to write it would put a file in the place of /dev/null
            logger.warning("HYBRIDRT_PROFILE=%s is no file: nothing is kept", path)
            return Remembered()
        if file.stat().st_size > BYTES_MAX:
            raise ValueError(f"expected at most {BYTES_MAX} bytes, it has {file.stat().st_size}")
        return Remembered(file, _read(file))
    except FileNotFoundError:  # the first run writes it
        return Remembered(file)
    except (OSError, ValueError, RecursionError) as error:
        logger.warning("HYBRIDRT_PROFILE=%s is ignored and written anew: %s", path, error)
        return Remembered(file)


def _read(file: Path) -> Mapping[str, Record]:
    found = json.loads(file.read_text(encoding="utf-8"))
    functions = found.pop("functions", None) if isinstance(found, dict) else None
    if not isinstance(functions, dict) or not all(isinstance(one, dict) for one in functions.values()):
        raise ValueError("expected an object with functions, as hybridrt writes it")
    if found != (about := _about()):
        raise ValueError(f"it was written by {found}, this is {about}")
    return functions


def _about() -> Record:
    """Return what must be the same in both runs."""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {"format": FORMAT, "python": sys.implementation.cache_tag, "gil": gil, "cpus": usable_cores()}


def _id(name: str, key: object) -> str:
    """Return what a record is kept under: functions of one name are told apart by their code."""
    return f"{name}#{fingerprint(key)}"


def fingerprint(key: object) -> str:
    """Return what tells the code of a function from another one; "" of a function without bytecode."""
    if isinstance(key, tuple):  # code that several classes inherit
        key = key[-1]
    return sha256(_text(key).encode("utf-8", "replace")).hexdigest()[:16] if isinstance(key, CodeType) else ""


def _text(value: object) -> str:
    """Return the same text for the same code in any run; positions in the file do not count."""
    if isinstance(value, CodeType):
        parts = [value.co_names, value.co_varnames, value.co_freevars, value.co_flags]
        return f"{value.co_code!r}{parts!r}{[_text(constant) for constant in value.co_consts]!r}"
    if isinstance(value, frozenset):  # in the order of the hashes, which are others in each run
        return f"frozenset{sorted(map(_text, value))!r}"
    if isinstance(value, tuple):
        return f"tuple{[_text(item) for item in value]!r}"
    return repr(value)


remembered = load(os.environ.get("HYBRIDRT_PROFILE"))
"""That of this program."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=remembered.start_clean)
