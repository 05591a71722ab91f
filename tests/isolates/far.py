"""Functions that the tests have done isolated; isolates import this module."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar

from hybridrt import check_cancelled, offload
from hybridrt.isolates.child import inside
from hybridrt.isolates.packing import Packed, pack

seen: ContextVar[str] = ContextVar("seen", default="nothing")
calls = 0


def named(self: int, fn: int, args: int) -> tuple[int, int, int]:
    """Return its arguments, whose names others use, too."""
    return self, fn, args


class Odd(Exception):
    """Pickles, and cannot be rebuilt: it needs two arguments and has kept one."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self.second = second


class Odder(Exception):
    """Cannot be rebuilt even without its constructor."""

    def __new__(cls, first: str, second: str) -> Odder:
        return super().__new__(cls, first)

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


class NotFound(Exception):
    """Makes its text of what it is given."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no such key: {key}")


class Missing(ImportError):
    """The same, and CPython keeps the module's name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"install {name}", name=name)


class Gone(OSError):
    """Wants other arguments than it passes on."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOENT, "gone", path)


class Level(IntEnum):
    """Levels of a program's own, as some have them."""

    NOTICE = 25


@dataclass(frozen=True)
class Rejected(Exception):
    """Pickles, and lets nothing be set on it afterwards."""

    code: int

    def __reduce__(self) -> Any:
        return type(self), (self.code,)


class Brittle:
    """Pickles; raises where it is rebuilt."""

    def __reduce__(self) -> Any:
        return _fail_to_rebuild, ()


class Panic(BaseException):
    """As the panic of an extension written in Rust."""


def panic() -> Any:
    raise Panic("a panic")


class PanickyError(Exception):
    """Panics where it is rebuilt, or, if it is given "early", where it is pickled in an isolate."""

    def __reduce__(self) -> Any:
        return panic() if self.args == ("early",) and inside() else (panic, ())


def _fail_to_rebuild() -> Any:
    raise LookupError("cannot be rebuilt")


class Shape:
    """Methods of every kind."""

    def __init__(self, sides: int) -> None:
        self.sides = sides

    @offload(pure=True)
    def count(self, extra: int) -> int:
        return self.sides + extra

    @offload(pure=True)
    @classmethod
    def name(cls) -> str:
        return cls.__name__

    @offload(pure=True)
    @staticmethod
    def twice(x: int) -> int:
        return 2 * x


class Tally:
    """Can be called, and is another one after each call."""

    def __init__(self, total: int) -> None:
        self.total = total

    def __call__(self, number: int) -> int:
        self.total += number
        return self.total

    def add(self, number: int) -> int:
        return self(number)


class Traced:
    """Notes the threads in which it is pickled."""

    threads: ClassVar[list[int]] = []

    def __reduce__(self) -> Any:
        self.threads.append(threading.get_ident())
        return Traced, ()

    def work(self, number: int) -> int:
        return number


def add(a: int, b: int = 1) -> int:
    return a + b


@offload(pure=True)
def double(x: int) -> int:
    return 2 * x


def echo(*args: Any, **kwargs: Any) -> Any:
    return args[0] if len(args) == 1 and not kwargs else (args, kwargs)


def pid() -> int:
    return os.getpid()


def search_path() -> list[str]:
    return sys.path


def recursion_limit() -> int:
    return sys.getrecursionlimit()


def seen_in_context() -> str:
    return seen.get()


def count_calls() -> int:
    global calls
    calls += 1
    return calls


def fail(error: BaseException) -> None:
    raise error


def fail_with(make: Callable[[str], BaseException], text: str) -> None:
    raise make(text)


def not_found_in_group(key: str) -> BaseException:
    return ExceptionGroup("several", [NotFound(key)])


def fail_unpicklably() -> None:
    class LocalError(Exception):
        pass

    raise LocalError("from a class that nobody else has")


def fail_in_a_circle() -> None:
    try:
        raise ValueError("round")
    except ValueError as error:
        raise error from error


def fail_mutely() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise LookupError

    raise MuteError


def fail_oddly() -> None:
    raise Odd("one", "two")


def fail_together() -> None:
    raise ExceptionGroup("several", [Odd("one", "two")])


def fail_odder() -> None:
    raise Odder("one", "two")


def signals() -> tuple[bool, set[Any]]:
    """Return True if Ctrl-C is ignored, and which signals are blocked."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN, mask


def count_to(number: int) -> Iterator[int]:
    yield from range(number)


def write_at_end(path: str) -> Iterator[int]:
    """Yield numbers, and write the process id when that ends."""
    try:
        number = 0
        while True:
            yield (number := number + 1)
    finally:
        Path(path).write_text(str(os.getpid()))


def pids_then_fail(number: int) -> Iterator[int]:
    for _ in range(number):
        yield os.getpid()
    raise LookupError("no more of them")


def number_then_lock() -> Iterator[Any]:
    yield 1
    yield threading.Lock()


def seen_twice() -> Iterator[str]:
    yield seen.get()
    yield seen.get()


def end_after(number: int) -> Iterator[int]:
    yield from range(number)
    os._exit(3)


def some_pids(number: int) -> Iterator[int]:
    for _ in range(number):
        yield os.getpid()


def locks(number: int) -> Iterator[Any]:
    for _ in range(number):
        yield threading.Lock()


def sleep_then_yield(seconds: float) -> Iterator[float]:
    time.sleep(seconds)
    yield seconds


def make_lock() -> Any:
    return threading.Lock()


def end(code: int) -> None:
    os._exit(code)


def hold(entered: str, release: str, value: Any = None) -> Any:
    """Say so on one pipe, wait for the other."""
    with open(entered, "w", encoding="ascii") as pipe:
        pipe.write(f"{os.getpid()}")
    with open(release, encoding="ascii") as pipe:
        pipe.read()
    return value


def hold_zero(entered: str, release: str, value: int) -> int:
    """Hold a call with 0; let others pass."""
    if not value:
        hold(entered, release)
    return value


def pop(values: list[int]) -> list[int]:
    """Take the last value away, and return what is left."""
    values.pop()
    return values


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def divide(value: float) -> float:
    return 1.0 / value


def end_at_zero(value: int) -> int:
    if not value:
        end(3)
    return value


def hold_or_end(entered: str, release: str, value: int) -> int:
    """Hold a call with -1, end the process of one with 0, let others pass."""
    if value < 0:
        hold(entered, release)
    return end_at_zero(value)


def ask_for_cancelling() -> str:
    check_cancelled()
    return "not cancelled"


def niceness() -> int:
    """Return that of the thread that calls, in the kernel's steps."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def interpreter_id() -> int:
    from concurrent import interpreters

    return interpreters.get_current().id


def current_thread() -> int:
    return threading.get_ident()


def nest(x: int) -> tuple[int, int, int]:
    """Await an isolated call in here; return where the outer and the inner one ran."""
    from .support import run_isolated

    async def main() -> tuple[int, int]:
        return await run_isolated(pid), await run_isolated(add, x)

    inner, value = asyncio.run(main())
    return os.getpid(), inner, value


def start_daemon() -> int:
    daemon = threading.Thread(target=os.getpid, daemon=True)
    daemon.start()
    daemon.join()
    return os.getpid()


def fork() -> int:
    return fork_and_return() or os.getpid()


def use_numpy() -> tuple[int, float]:
    """Use an extension module that no sub-interpreter can load."""
    import numpy as np

    return os.getpid(), float(np.ones(3).sum())


def say(text: str, end: str = "\n") -> None:
    print(text, end=end)


def print_pid_and_spin() -> None:
    print(os.getpid(), flush=True)
    while True:
        pass


def print_pid_and_keep_the_gil() -> None:
    print(os.getpid(), flush=True)
    re.match(r"(a+)+$", "a" * 40 + "b")  # takes years


def fork_and_return() -> int:
    """Return in a forked child, too; return here how that has ended."""
    sum(range(1_000_000))  # the child's CPU time begins anew
    child = os.fork()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0


def fork_and_terminate() -> int:
    """Send SIGTERM to a forked child; return how that has ended."""
    if not (child := os.fork()):
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def raise_stop_iteration() -> None:
    raise StopIteration(1)


def make_bytes(size: int) -> bytes:
    return bytes(size)


def compute() -> int:
    return sum(range(10_000))


class Marked:
    """Knows which thread has put it together."""

    rebuilt_in = 0

    def __setstate__(self, state: object) -> None:
        self.rebuilt_in = threading.get_ident()

    def __getstate__(self) -> object:
        return "state"


def make_marked() -> Marked:
    return Marked()


def refuse_late(path: str) -> int:
    """Say where it runs, and fail in sub-interpreters as an extension does that refuses them."""
    with open(path, "a", encoding="ascii") as file:
        file.write("x")
    if "_interpreters" in sys.modules and interpreter_id():
        raise ImportError("module x does not support loading in subinterpreters")
    return os.getpid()


def disturb(stray: bytes | None, value: Any = None) -> Any:
    """Write to the wire of this isolate what belongs to no call; None writes nothing."""
    if stray is not None:
        own_wire()._socket.sendall(stray)
    return value


def answer_twice(value: Any) -> Any:
    """Answer a call here, so that its real answer belongs to none."""
    own_wire().send(pack(value))
    return value


def answer_garbage() -> None:
    """Answer a call with what is no pickle."""
    own_wire().send(Packed((b"garbage",)))


def own_wire() -> Any:
    """Return the wire that this isolate listens to."""
    frame = sys._getframe()
    while frame.f_code.co_name != "_serve":
        assert frame.f_back is not None
        frame = frame.f_back
    return frame.f_locals["wire"]


def stop() -> str:
    breakpoint()
    return "went on"


def stop_with_pdb() -> None:
    import pdb

    pdb.set_trace()


def dive(depth: int) -> float:
    """Fail some frames deep."""
    return dive(depth - 1) if depth else divide(0.0)


prepared_with: list[tuple[Any, ...]] = []


def prepare(*args: Any) -> None:
    """Note what an isolate was prepared with."""
    prepared_with.append(args)


def prepared() -> list[tuple[Any, ...]]:
    return prepared_with


def hold_prepared(entered: str, release: str, value: object) -> list[tuple[Any, ...]]:
    hold(entered, release)
    return prepared_with


def fail_to_prepare(path: str) -> None:
    with open(path, "a", encoding="ascii") as file:
        file.write("x")
    raise ValueError("nothing to prepare")


def log(name: str, level: int, text: str, *args: Any) -> None:
    logging.getLogger(name).log(level, text, *args)


def log_and_hold(entered: str, release: str, value: object) -> None:
    logging.getLogger("far").info("in the middle")
    hold(entered, release)


def log_exception() -> None:
    try:
        divide(0.0)
    except ZeroDivisionError:
        logging.getLogger("far").exception("cannot divide")


class Drawn:
    def __str__(self) -> str:
        return "<a shape>"


def log_extra() -> None:
    logging.getLogger("far").warning("with more", extra={"number": 7, "shape": Drawn()})


def log_numbers(start: int, count: int) -> None:
    for number in range(start, start + count):
        logging.getLogger("far").info("%d", number)


def log_in_thread() -> None:
    logs = threading.Thread(target=log, args=("far", logging.WARNING, "from a thread"))
    logs.start()
    logs.join()


def change_context(value: str) -> str:
    before = seen.get()
    seen.set(value)
    return before


def start_tracing() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    trace.set_tracer_provider(TracerProvider())


def make_span() -> tuple[int, int]:
    """Return the trace of a span made here, and the span above it."""
    from opentelemetry import trace

    with trace.get_tracer("far").start_as_current_span("work") as span:
        return span.get_span_context().trace_id, span.parent.span_id  # type: ignore[attr-defined]


def read_baggage() -> dict[str, object]:
    from opentelemetry import baggage

    return dict(baggage.get_all())


def has_imported(module: str) -> bool:
    return module in sys.modules
