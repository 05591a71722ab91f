"""Calls done in another interpreter, of either kind: values, exceptions, what cannot cross."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import signal
import subprocess
import sys
import threading
import traceback
from typing import Any

import numpy as np
import pytest

from hybridrt import NotPortableError, Runtime, offload
from hybridrt.errors import IsolateStartError
from hybridrt.isolates import remote_invocation, wire
from hybridrt.isolates.isolate_pool import processes
from hybridrt.isolates.packing import pack
from hybridrt.isolates.process import WorkerProcess
from hybridrt.isolates.reference import refer
from hybridrt.isolates.subinterpreter import AVAILABLE
from hybridrt.loop.isolated_call import _profile
from hybridrt.pool.priority import ISOLATE
from hybridrt.values import Isolation

from . import far, leaving
from .support import FarGate, push, run_isolated

pytestmark = pytest.mark.usefixtures("kept", "runtime")


def lacks_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError


async def test_a_call_returns_what_the_function_returns(isolation: Isolation) -> None:
    assert await run_isolated(far.add, 1, isolation=isolation, kwargs={"b": 2}) == 3


async def test_a_parameter_may_have_the_name_self(isolation: Isolation) -> None:
    away = offload(far.named, pure=True, where="isolate", isolation=isolation)
    assert await away(self=1, fn=2, args=3) == (1, 2, 3)


async def test_a_process_is_another_process() -> None:
    assert await run_isolated(far.pid) != os.getpid()


@pytest.mark.skipif(not AVAILABLE, reason="sub-interpreters need Python 3.14")
async def test_a_sub_interpreter_is_one_of_this_process() -> None:
    assert await run_isolated(far.pid, isolation="interpreter") == os.getpid()
    assert await run_isolated(far.interpreter_id, isolation="interpreter") != 0


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own here")
async def test_processes_run_below_the_loop_also_those_that_were_there_before_it() -> None:
    main = os.getpriority(os.PRIO_PROCESS, os.getpid())
    assert await run_isolated(far.niceness, isolation="process") == main + ISOLATE


async def test_auto_takes_a_sub_interpreter_where_there_are_any() -> None:
    ran_here = await run_isolated(far.pid, isolation="auto") == os.getpid()
    assert ran_here == AVAILABLE


async def test_an_offloaded_function_runs_itself_and_not_its_wrapper(isolation: Isolation) -> None:
    assert await run_isolated(far.double._fn, 21, isolation=isolation) == 42
    assert await run_isolated(far.Shape.count._fn, far.Shape(4), 3, isolation=isolation) == 7


async def test_a_method_is_pickled_with_its_object_off_the_loop(isolation: Isolation) -> None:
    far.Traced.threads.clear()
    assert await run_isolated(far.Traced().work, 5, isolation=isolation) == 5
    assert far.Traced.threads
    assert threading.get_ident() not in far.Traced.threads


async def test_an_array_in_a_function_without_a_name_is_not_copied_into_the_stream() -> None:
    array = np.ones(100_000)
    packed = pack(tuple(refer(functools.partial(far.echo, array), pickles=False)))
    assert np.shares_memory(np.frombuffer(packed.buffers[0]), array)
    assert (await run_isolated(functools.partial(far.echo, array)) == array).all()


@pytest.mark.parametrize("size", [0, 100, 3_000_000])
@pytest.mark.parametrize("kind", [bytes, bytearray, np.zeros], ids=["bytes", "bytearray", "array"])
async def test_data_of_every_size_goes_there_and_back(kind: Any, size: int) -> None:
    value = kind(size)
    arrived = await run_isolated(far.echo, value, isolation="process")
    assert type(arrived) is type(value)
    assert bytes(arrived) == bytes(value)


async def test_modules_are_imported_once_and_keep_their_state(isolation: Isolation) -> None:
    counted = [await run_isolated(far.count_calls, isolation=isolation) for _ in range(3)]
    assert counted == [counted[0], counted[0] + 1, counted[0] + 2]
    assert far.calls == 0


async def test_calls_one_after_the_other_use_one_isolate_and_its_one_thread(isolation: Isolation) -> None:
    ran_in = {await run_isolated(far.current_thread, isolation=isolation) for _ in range(3)}
    assert len(ran_in) == 1
    assert ran_in != {threading.get_ident()}


async def test_context_variables_do_not_cross(isolation: Isolation) -> None:
    far.seen.set("mine")
    assert await run_isolated(far.seen_in_context, isolation=isolation) == "nothing"


async def test_check_cancelled_does_nothing_there(isolation: Isolation) -> None:
    assert await run_isolated(far.ask_for_cancelling, isolation=isolation) == "not cancelled"


async def test_inside_of_an_isolate_calls_are_not_carried_any_further() -> None:
    outer, inner, value = await run_isolated(far.nest, 5)
    assert outer == inner != os.getpid()
    assert value == 6


# ---------------------------------------------------------------------- exceptions


async def test_an_exception_arrives_as_raised_with_its_traceback_as_the_cause(isolation: Isolation) -> None:
    with pytest.raises(LookupError, match="not there") as caught:
        await run_isolated(far.fail, LookupError("not there"), isolation=isolation)
    told = "".join(traceback.format_exception(caught.value))
    assert "in fail" in told
    assert "raise error" in told
    assert "child.py" not in told


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_nothing_that_a_function_raises_ends_its_isolate(
    isolation: Isolation, kind: type[BaseException]
) -> None:
    counted = await run_isolated(far.count_calls, isolation=isolation)
    call = push(far.fail, kind("over"), isolation=isolation)
    await asyncio.wait({call})  # raised in a task, some of these would end the loop
    assert type(call.exception()) is kind
    assert await run_isolated(far.count_calls, isolation=isolation) == counted + 1


@pytest.mark.parametrize(
    ("fn", "kind", "text"),
    [
        (far.fail_in_a_circle, ValueError, "round"),
        (far.fail_mutely, RuntimeError, r"MuteError: <no text: its __str__ raised LookupError>"),
    ],
)
async def test_an_exception_of_an_odd_kind_arrives_and_leaves_its_isolate_alone(
    isolation: Isolation, fn: Any, kind: type[Exception], text: str
) -> None:
    counted = await run_isolated(far.count_calls, isolation=isolation)
    with pytest.raises(kind, match=text):
        await run_isolated(fn, isolation=isolation)
    assert await run_isolated(far.count_calls, isolation=isolation) == counted + 1


async def test_an_exception_on_which_nothing_can_be_set_arrives(isolation: Isolation) -> None:
    with pytest.raises(far.Rejected) as caught:
        await run_isolated(far.fail, far.Rejected(7), isolation=isolation)
    assert caught.value.code == 7
    assert "in fail" in "".join(traceback.format_exception(caught.value))


async def test_a_call_that_could_not_be_packed_for_lack_of_memory_may_be_carried_another_time(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(remote_invocation, "pack", lacks_memory)
        with pytest.raises(
            IsolateStartError, match=r"to carry the arguments of .*far:add, so the call has not begun"
        ):
            await run_isolated(far.add, 1, isolation=isolation)
    assert await run_isolated(far.add, 1, isolation=isolation) == 2


async def test_memory_lacking_for_a_result_is_an_error_of_the_call_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(wire.pickle, "loads", lacks_memory)
        with pytest.raises(MemoryError):
            await run_isolated(far.add, 1)
    assert await run_isolated(far.add, 1) == 2


async def test_stop_iteration_arrives_as_the_cause_of_a_runtime_error(isolation: Isolation) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_isolated(far.fail, StopIteration(1), isolation=isolation)


async def test_an_exception_that_cannot_be_pickled_is_told_with_type_and_text(isolation: Isolation) -> None:
    with pytest.raises(RuntimeError, match=r"LocalError: from a class that nobody else has") as caught:
        await run_isolated(far.fail_unpicklably, isolation=isolation)
    assert "in fail_unpicklably" in str(caught.value.__cause__)


async def test_an_exception_arrives_although_its_constructor_wants_what_it_has_not_kept(
    isolation: Isolation,
) -> None:
    with pytest.raises(far.Odd) as caught:
        await run_isolated(far.fail_oddly, isolation=isolation)
    assert (caught.value.args, caught.value.second) == (("one",), "two")
    assert "in fail_oddly" in str(caught.value.__cause__)
    with pytest.raises(ExceptionGroup) as several:
        await run_isolated(far.fail_together, isolation=isolation)
    (inner,) = several.value.exceptions
    assert isinstance(inner, far.Odd)
    assert inner.second == "two"


async def test_an_exception_that_formats_its_text_arrives_with_the_same_text(isolation: Isolation) -> None:
    with pytest.raises(far.NotFound) as caught:
        await run_isolated(far.fail_with, far.NotFound, "a", isolation=isolation)
    assert str(caught.value) == "no such key: a"
    with pytest.raises(ExceptionGroup) as several:
        await run_isolated(far.fail_with, far.not_found_in_group, "a", isolation=isolation)
    assert str(several.value.exceptions[0]) == "no such key: a"


async def test_an_exception_keeps_what_cpython_keeps_of_it_whatever_its_constructor_wants() -> None:
    with pytest.raises(far.Gone) as gone:
        await run_isolated(far.fail_with, far.Gone, "a.txt")
    assert (gone.value.errno, gone.value.strerror, gone.value.filename) == (errno.ENOENT, "gone", "a.txt")
    with pytest.raises(far.Missing) as missing:
        await run_isolated(far.fail_with, far.Missing, "numpy")
    assert (missing.value.msg, missing.value.name) == ("install numpy", "numpy")


async def test_an_exception_that_cannot_be_rebuilt_is_told_with_type_and_text() -> None:
    with pytest.raises(RuntimeError, match=r"far\.Odder: one"):
        await run_isolated(far.fail_odder)


# ---------------------------------------------------------------------- what cannot cross


async def test_an_argument_that_cannot_be_pickled_is_named_with_its_type(isolation: Isolation) -> None:
    with pytest.raises(NotPortableError, match=r"argument 2 of .*far:echo is a lock .*where='thread'"):
        await run_isolated(far.echo, 1, threading.Lock(), isolation=isolation)
    with pytest.raises(NotPortableError, match=r"argument 'key' of .*far:echo is a function"):
        await run_isolated(far.echo, isolation=isolation, kwargs={"key": lambda: None})


async def test_an_argument_that_cannot_be_rebuilt_is_told(isolation: Isolation) -> None:
    with pytest.raises(NotPortableError, match=r"arguments of .*far:echo .*cannot be rebuilt"):
        await run_isolated(far.echo, far.Brittle(), isolation=isolation)


async def test_a_result_that_cannot_be_pickled_is_told_with_its_type(isolation: Isolation) -> None:
    with pytest.raises(NotPortableError, match=r"result of .*far:make_lock .*_thread\.lock"):
        await run_isolated(far.make_lock, isolation=isolation)


async def test_a_panic_while_something_crosses_is_told_as_any_error(isolation: Isolation) -> None:
    before = await run_isolated(far.count_calls, isolation=isolation)
    with pytest.raises(NotPortableError, match=r"arguments of .*far:echo .*a panic"):
        await run_isolated(far.echo, far.PanickyError(), isolation=isolation)
    with pytest.raises(NotPortableError, match=r"result of .*far:PanickyError .*a panic"):
        await run_isolated(far.PanickyError, "early", isolation=isolation)
    with pytest.raises(far.PanickyError, match="once"):
        await run_isolated(far.fail_with, far.PanickyError, "once", isolation=isolation)
    assert await run_isolated(far.count_calls, isolation=isolation) == before + 1


async def test_a_function_whose_module_is_missing_there_is_told(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import ModuleType

    module = ModuleType("only_here")
    exec("def work(): pass", module.__dict__)
    monkeypatch.setitem(__import__("sys").modules, "only_here", module)
    with pytest.raises(NotPortableError, match=r"only_here:work could not be rebuilt .*No module named"):
        await run_isolated(module.work, isolation=isolation)


async def test_a_function_whose_module_ends_the_program_there_is_told(isolation: Isolation) -> None:
    with pytest.raises(NotPortableError, match=r"leaving:work could not be rebuilt .*SystemExit: 2"):
        await run_isolated(leaving.work, isolation=isolation)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="there are no signal masks here")
@pytest.mark.blocks_the_loop
async def test_ctrl_c_and_sigterm_do_not_reach_a_process_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    held, masks = {signal.SIGINT, signal.SIGTERM}, list[Any]()
    start = subprocess.Popen

    def note(*args: Any, **options: Any) -> Any:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        return start(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", note)
    started = WorkerProcess()
    try:
        told = started.run(pack((tuple(refer(far.signals)), (), {}))).value
    finally:
        started.ask_to_leave()
        started.close()
    assert [held <= mask for mask in masks] == [True]
    assert not held & signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert told == (True, set())


async def test_after_what_could_not_cross_the_isolate_goes_on(isolation: Isolation) -> None:
    counted = await run_isolated(far.count_calls, isolation=isolation)
    for fn, arg in ((far.echo, far.Brittle()), (far.make_lock, None)):
        with pytest.raises(NotPortableError):
            await run_isolated(fn, *([] if arg is None else [arg]), isolation=isolation)
    assert await run_isolated(far.count_calls, isolation=isolation) == counted + 1


# ---------------------------------------------------------------------- how many, and what it costs


@pytest.mark.usefixtures("one_at_a_time")
async def test_as_many_calls_run_at_once_as_there_are_isolates_and_the_others_wait(
    isolation: Isolation, far_gate: FarGate, runtime: Runtime
) -> None:
    first = far_gate.push("first", isolation=isolation)
    await far_gate.entered()
    second = push(far.add, 1, isolation=isolation)
    assert sum(runtime.statistics().queued.values()) == 1
    await far_gate.release()
    assert await first == "first"
    assert await second == 2


async def test_the_statistics_show_isolated_calls_apart_as_waiting_ones(
    isolation: Isolation, runtime: Runtime
) -> None:
    for _ in range(40):
        await run_isolated(far.add, 1, isolation=isolation)
    await runtime.offload(far.add, 1)
    rows = {row.name: row for row in runtime.statistics().functions}
    row = rows[f"{far.__name__}:add [{isolation}]"]
    assert (row.calls, row.kind) == (40, "waiting")
    assert rows[f"{far.__name__}:add"].calls == 1


async def test_functions_below_one_decorator_are_shown_apart(runtime: Runtime) -> None:
    pool = runtime.executor._pool
    decorated = [functools.wraps(fn)(lambda: None) for fn in (far.add, far.pid)]
    names = [_profile(pool, fn, processes).name for fn in decorated]
    assert names == [f"{far.__name__}:add [process]", f"{far.__name__}:pid [process]"]


async def test_a_name_that_is_bound_to_something_else_between_two_calls_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fn = far.add
    assert await run_isolated(fn, 1) == 2
    monkeypatch.setattr(far, "add", far.echo)
    with pytest.raises(NotPortableError, match="not what its module has under that name"):
        await run_isolated(fn, 1)
    monkeypatch.undo()
    assert await run_isolated(fn, 1) == 2
