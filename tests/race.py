"""Repeats the tests marked `race`, where a wrong interleaving is rare.

`pytest -m race --race-repeats 1500` runs the body of each such test 1,500 times, on both event loops
where it is asynchronous, at the shortest switch interval and beside a spinning thread, so that threads
are switched at nearly every bytecode. Without the option a body runs a few times in peace.

Fixtures are set up once for all repeats: a race test makes what it races with in its own body.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest

ORDINARY_REPEATS = 5
SWITCH_INTERVAL = 1e-6
"""Seconds; CPython takes it as one microsecond, its shortest."""
SECONDS_A_REPEAT = 0.2
"""What a repeat may take on a slow machine before the test counts as hung; a guess, nobody measured it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `--race-repeats`."""
    parser.addoption(
        "--race-repeats",
        type=int,
        metavar="N",
        help="run the body of each test marked race N times, at the shortest switch interval "
        "and beside a spinning thread",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a number of repeats that would run nothing."""
    repeats = config.getoption("race_repeats")
    if repeats is not None and repeats < 1:
        raise pytest.UsageError(f"--race-repeats must be at least 1, got {repeats}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give the repeated tests the time they need."""
    repeats = config.getoption("race_repeats")
    if repeats is None:
        return
    limit = pytest.mark.timeout(60 + repeats * SECONDS_A_REPEAT)
    for item in items:
        if item.get_closest_marker("race"):
            item.add_marker(limit)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Put a repeating function in the place of the body.

    By now an asynchronous body is a plain function too: pytest-asyncio has wrapped it.
    """
    if pyfuncitem.get_closest_marker("race") is None:
        return (yield)
    repeats: int | None = pyfuncitem.config.getoption("race_repeats")
    once = pyfuncitem.obj
    pyfuncitem.obj = partial(_repeat, once, repeats or ORDINARY_REPEATS)
    try:
        with nullcontext() if repeats is None else contention():
            return (yield)
    finally:
        pyfuncitem.obj = once


def _repeat(body: Callable[..., object], repeats: int, **fixtures: object) -> None:
    interval = sys.getswitchinterval()
    for repeat in range(1, repeats + 1):
        try:
            body(**fixtures)
        except BaseException as error:
            error.add_note(f"in repeat {repeat} of {repeats}")
            raise
        # A body that changes the interval must not take the strain off the repeats after it.
        sys.setswitchinterval(interval)


@contextmanager
def contention() -> Iterator[None]:
    """Switch threads as often as CPython can, with one more thread that never waits."""
    interval = sys.getswitchinterval()
    stop = threading.Event()
    spinner = threading.Thread(target=_spin, args=(stop,), name="race-spinner", daemon=True)
    spinner.start()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        spinner.join()


def _spin(stop: threading.Event) -> None:
    while not stop.is_set():
        pass
