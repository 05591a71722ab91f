"""What happens to calls when the interpreter ends; each test in an interpreter of its own."""

from __future__ import annotations

import sys

import pytest

from .support import KINDS, Kind, run_python

DEMAND = KINDS[1]
SHOW = """
import sys, threading, time

def show(text, gate=None):
    if gate is not None:
        gate.wait()
    print(text, flush=True)
"""


def test_running_and_queued_calls_finish_before_the_interpreter_ends(kind: Kind) -> None:
    printed = run_python(
        kind,
        SHOW
        + """
gate = threading.Event()
executor = Executor(1)
for number in range(5):
    executor.submit(show, number, gate)
print("end of main", flush=True)
gate.set()
""",
    )
    assert printed.split("\n") == ["end of main", "0", "1", "2", "3", "4", ""]


def test_calls_finish_though_the_executor_was_shut_down_without_wait(kind: Kind) -> None:
    printed = run_python(
        kind,
        SHOW
        + """
gate = threading.Event()
executor = Executor(1)
executor.submit(show, "running", gate)
executor.submit(show, "queued", gate)
executor.shutdown(wait=False)
print("end of main", flush=True)
gate.set()
""",
    )
    assert printed.split("\n") == ["end of main", "running", "queued", ""]


def test_calls_cancelled_by_shutdown_do_not_run_at_exit(kind: Kind) -> None:
    printed = run_python(
        kind,
        SHOW
        + """
gate, started = threading.Event(), threading.Event()
executor = Executor(1)
executor.submit(lambda: (started.set(), show("running", gate)))
executor.submit(show, "never")
started.wait()
executor.shutdown(wait=False, cancel_futures=True)
print("end of main", flush=True)
gate.set()
""",
    )
    assert printed.split("\n") == ["end of main", "running", ""]


def test_calls_of_a_forgotten_executor_finish_before_the_interpreter_ends(kind: Kind) -> None:
    printed = run_python(
        kind,
        SHOW
        + """
gate = threading.Event()
executor = Executor(1)
executor.submit(show, "running", gate)
executor.submit(show, "queued", gate)
del executor
print("end of main", flush=True)
gate.set()
""",
    )
    assert printed.split("\n") == ["end of main", "running", "queued", ""]


def test_idle_workers_do_not_hold_the_interpreter(kind: Kind) -> None:
    printed = run_python(
        kind,
        """
executor = Executor(4)
print(sorted(executor.map(abs, range(-4, 0))))
""",
    )
    assert printed == "[1, 2, 3, 4]\n"


REFUSED = {
    "cannot schedule new futures after shutdown",
    "cannot schedule new futures after interpreter shutdown",
}


@pytest.mark.parametrize("call", ["executor.submit(int)", "executor.map(abs, [1])"])
def test_submitting_after_the_interpreter_began_to_end_says_so(kind: Kind, call: str) -> None:
    """An executor with workers is shut down by the first of them that leaves, and may say so instead."""
    printed = run_python(
        kind,
        f"""
import atexit

unused, used = Executor(2), Executor(2)
used.submit(int).result()

@atexit.register
def late():
    for executor in (unused, used):
        try:
            {call}
        except RuntimeError as error:
            print(error)
""",
    )
    unused, used = printed.splitlines()
    assert unused == "cannot schedule new futures after interpreter shutdown"
    assert used in REFUSED


def test_a_call_that_submits_while_the_interpreter_ends_is_refused(kind: Kind) -> None:
    printed = run_python(
        kind,
        """
import threading

def late():
    at_end.wait()
    try:
        while True:
            executor.submit(int)
    except RuntimeError as error:
        print(error)

at_end = threading.Event()
executor = Executor(1)
executor.submit(late)
at_end.set()
""",
    )
    assert printed.strip() in REFUSED


def test_calls_submitted_from_a_daemon_thread_finish_too(kind: Kind) -> None:
    printed = run_python(
        kind,
        SHOW
        + """
gate, submitted = threading.Event(), threading.Event()
executor = Executor(1)

def submit():
    executor.submit(show, "done", gate)
    submitted.set()

threading.Thread(target=submit, daemon=True).start()
submitted.wait()
print("end of main", flush=True)
gate.set()
""",
    )
    assert printed.split("\n") == ["end of main", "done", ""]


def test_leaving_by_sys_exit_in_a_call_ends_only_the_call(kind: Kind) -> None:
    printed = run_python(
        kind,
        """
import sys

executor = Executor(1)
print(repr(executor.submit(sys.exit, 3).exception()))
print(executor.submit(abs, -1).result())
""",
    )
    assert printed == "SystemExit(3)\n1\n"


def test_the_exit_handlers_run_after_the_calls_have_finished(kind: Kind) -> None:
    printed = run_python(
        kind,
        SHOW
        + """
import atexit

atexit.register(print, "exit handler")
gate = threading.Event()
executor = Executor(1)
executor.submit(show, "call", gate)
gate.set()
""",
    )
    assert printed == "call\nexit handler\n"


def test_no_thread_is_left_when_the_exit_handlers_run(kind: Kind) -> None:
    printed = run_python(
        kind,
        SHOW
        + """
import atexit
atexit.register(lambda: show([thread.name for thread in threading.enumerate()]))
Executor(1).submit(show, "called").result()
""",
    )
    assert printed == "called\n['MainThread']\n"


def test_a_loop_with_the_executor_as_its_default_ends_cleanly(kind: Kind) -> None:
    printed = run_python(
        kind,
        """
import asyncio

async def main():
    asyncio.get_running_loop().set_default_executor(Executor(2))
    print(await asyncio.gather(*(asyncio.to_thread(abs, -n) for n in range(5))))

asyncio.run(main())
""",
    )
    assert printed == "[0, 1, 2, 3, 4]\n"


def test_a_thread_that_a_call_started_finishes_before_the_interpreter_ends(kind: Kind) -> None:
    printed = run_python(
        kind,
        """
import threading

def show():
    threading.main_thread().join()
    print("thread", flush=True)

executor = Executor(1)
executor.submit(lambda: threading.Thread(target=show).start()).result()
executor.shutdown()
print("end of main", flush=True)
""",
    )
    assert printed == "end of main\nthread\n"


AT_EXIT = """
import sys, threading

def say(text):
    sys.stdout.write(f"{text}\\n")  # in one piece: several threads do it
    sys.stdout.flush()

def at_exit(do):
    '''Call `do` once the interpreter takes no more calls.'''
    def wait():
        probe = Executor(1)
        try:
            while True:
                probe.submit(int).result()
        except RuntimeError:
            do()
    threading.Thread(target=wait).start()
"""


def test_calls_that_have_no_thread_yet_when_the_interpreter_ends_get_one(kind: Kind) -> None:
    """The first call holds the permit for functions that nobody knows, so the second pool has no thread."""
    printed = run_python(
        kind,
        AT_EXIT
        + """
end = []
one, other = Executor(2), Executor(2)

def compute():
    while not end:
        pass
    say("one")

one.submit(compute)
other.submit(lambda: say("other"))
at_exit(lambda: end.append(True))
""",
    )
    assert sorted(printed.split()) == ["one", "other"]


def test_calls_that_wait_for_each_other_get_through_while_the_interpreter_ends(kind: Kind) -> None:
    printed = run_python(
        kind,
        AT_EXIT
        + """
met = threading.Barrier(2)
executor = Executor(2)
for _ in range(2):
    executor.submit(lambda: (met.wait(), say("met")))
""",
    )
    assert printed == "met\nmet\n"


@pytest.mark.skipif((3, 12) <= sys.version_info < (3, 12, 3), reason="starts no threads at exit")
def test_calls_that_wait_run_together_at_exit_as_before_it() -> None:
    printed = run_python(
        DEMAND,
        AT_EXIT
        + """
met = threading.Barrier(6)
executor = Executor()
for _ in range(6):
    executor.submit(lambda: (met.wait(), say("met")))
""",
    )
    assert printed == 6 * "met\n"


def test_calls_run_at_exit_though_no_thread_can_be_started_any_more(kind: Kind) -> None:
    """As on Python 3.12.0 to 3.12.2: the main thread takes the place of a worker."""
    printed = run_python(
        kind,
        AT_EXIT
        + """
start = threading.Thread.start

def refuse(thread):
    if threading._SHUTTING_DOWN:
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)

threading.Thread.start = refuse
met = threading.Barrier(2)
executor = Executor(2)
for _ in range(2):
    executor.submit(lambda: (met.wait(), say("met")))
executor.submit(say, "after")
""",
    )
    assert sorted(printed.split()) == ["after", "met", "met"]


def test_a_call_that_is_left_behind_at_exit_is_waited_for_no_longer(ours: Kind) -> None:
    printed = run_python(
        ours,
        AT_EXIT
        + """
entered, never = threading.Event(), threading.Event()
executor = Executor(1)

def stuck():
    entered.set()
    never.wait()

def leave_behind():
    (worker,) = executor._pool.roster.workers
    worker.leave_behind()
    print("left behind", flush=True)

executor.submit(stuck)
entered.wait()
at_exit(leave_behind)
""",
    )
    assert printed == "left behind\n"


LEFT_BEHIND = (
    AT_EXIT
    + """
import atexit, time
import hybridrt
from hybridrt.executor import exit as at_end
from hybridrt.pool import phases

entered, gate = threading.Event(), threading.Event()
executor = Executor(2)

def leave_behind(call, *, go_on):
    '''Run a call that computes by its kind; once the interpreter takes no more calls, leave it behind.

    The gate opens when `go_on` is true.
    '''
    def leave():
        (worker,) = executor._pool.roster.workers
        worker.leave_behind()
        say("left behind")
        while not go_on():
            time.sleep(0.001)
        gate.set()

    executor._pool.profiles.of(call).kind = hybridrt.Kind.SHORT
    executor.submit(call)
    entered.wait()
    at_exit(leave)
"""
)


def test_a_call_that_is_left_behind_has_some_time_to_end_before_the_interpreter_does(ours: Kind) -> None:
    """One that came back later would be ended by `pthread_exit`, which aborts the process in C++ code."""
    printed = run_python(
        ours,
        LEFT_BEHIND
        + """
at_end.GRACE = 60.0

def late():
    entered.set()
    gate.wait()
    time.sleep(0.1)
    say("ended")

leave_behind(late, go_on=lambda: True)
""",
    )
    assert printed == "left behind\nended\n"


def test_a_call_that_was_left_behind_begins_no_computing_phase_while_the_interpreter_ends() -> None:
    printed = run_python(
        DEMAND,
        LEFT_BEHIND
        + """
at_end.GRACE, phases.STILL = 0.5, 0.001

def waits_and_computes():
    with hybridrt.blocking():
        entered.set()
        gate.wait()
    say("computes")

leave_behind(waits_and_computes, go_on=lambda: at_end.shared.permits.ended)
""",
    )
    assert printed == "left behind\n"


def test_an_exit_handler_gets_a_lock_that_a_call_left_behind_holds_across_a_wait() -> None:
    """As `logging.shutdown` does that of a handler which sends records."""
    printed = run_python(
        DEMAND,
        LEFT_BEHIND
        + """
at_end.GRACE, phases.STILL, phases.MOST = 0.1, 0.001, 0.5
lock = threading.Lock()

def sends():
    with lock, hybridrt.blocking():
        entered.set()
        gate.wait()

def shut_down():
    with lock:
        say("shut down")

atexit.register(shut_down)
leave_behind(sends, go_on=lambda: at_end.shared.permits.ended)
""",
    )
    assert printed == "left behind\nshut down\n"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="there a program has no sub-interpreters")
def test_a_sub_interpreter_without_daemon_threads_is_governed_and_ends() -> None:
    printed = run_python(
        DEMAND,
        """
from concurrent import interpreters

interpreter = interpreters.create()
interpreter.exec('''
from hybridrt import AdaptiveThreadPoolExecutor
from hybridrt.executor.budget import shared
from hybridrt.governor import governor

governor._LEAVE_AFTER = 1e6
print(AdaptiveThreadPoolExecutor(1).submit(abs, -1).result(), shared.governor.error)
print(shared.native_limits.active)
''')
interpreter.close()
print("closed")
""",
    )
    assert printed == "1 None\nFalse\nclosed\n"
