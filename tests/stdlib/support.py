"""What the conformance tests share: the executors compared, gates, fresh interpreters."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import hybridrt
from hybridrt.values import PolicyName

__all__ = ["DEADLINE", "KINDS", "STDLIB", "Gate", "Kind", "original", "run_python", "threads_of"]

DEADLINE = 30.0
"""Seconds after which a test gives up on something that has to happen; never awaited when it passes."""

_ROOT = str(Path(hybridrt.__file__).resolve().parents[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One executor class with its options, in this process and in a fresh interpreter.

    Attributes:
        name: Shown in the test's id.
        build: Makes an executor; takes the stdlib's arguments.
        source: Python text that binds the same to the name `Executor`.
    """

    name: str
    build: Callable[..., ThreadPoolExecutor]
    source: str

    @property
    def is_ours(self) -> bool:
        return self is not STDLIB


def _ours(policy: PolicyName) -> Kind:
    return Kind(
        name=policy,
        build=partial(hybridrt.AdaptiveThreadPoolExecutor, policy=policy),
        source=(
            "import functools, hybridrt\n"
            f"Executor = functools.partial(hybridrt.AdaptiveThreadPoolExecutor, policy={policy!r})\n"
        ),
    )


STDLIB = Kind(
    name="stdlib",
    build=ThreadPoolExecutor,
    source="from concurrent.futures import ThreadPoolExecutor as Executor\n",
)
KINDS = (STDLIB, _ours("demand"), _ours("paper"))


class Gate:
    """A call that waits: `started` tells that it runs, `release()` lets it go.

    Calling the gate returns what it was called with. One gate may hold several calls.
    """

    def __init__(self) -> None:
        self.started = threading.Event()
        self._open = threading.Event()

    def __call__(self, value: Any = None) -> Any:
        self.started.set()
        if not self._open.wait(DEADLINE):
            raise TimeoutError("expected the gate to be released by the test, it was not")
        return value

    def release(self) -> None:
        self._open.set()

    def hold(self, executor: Executor, value: Any = None) -> Future[Any]:
        """Submit the gate and return once a worker is inside."""
        future = executor.submit(self, value)
        assert self.started.wait(DEADLINE), "expected a worker to start the call"
        return future


def threads_of(executor: Executor, count: int) -> set[threading.Thread]:
    """Make `count` workers run at once and return their threads."""
    barrier = threading.Barrier(count)

    def meet() -> threading.Thread:
        barrier.wait(DEADLINE)
        return threading.current_thread()

    futures = [executor.submit(meet) for _ in range(count)]
    return {future.result(DEADLINE) for future in futures}


def original(error: BaseException | None) -> BaseException | None:
    """Return what the call raised, given what `exception()` returned.

    Before 3.13 asyncio cannot carry `StopIteration`, so our futures hand it out inside a
    `RuntimeError` there; `result()` raises the original everywhere.
    """
    wrapped = isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration)
    return error.__cause__ if error is not None and wrapped else error


def run_python(kind: Kind, script: str) -> str:
    """Run `script`, which finds the class as `Executor`, in a fresh interpreter; return what it printed.

    The interpreter must end by itself, with status 0 and nothing on stderr.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", kind.source + dedent(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([_ROOT, *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout
