"""A forked child: it starts clean, and a call of its parent never runs in it.

The scripts fork while workers live, which CPython warns of from 3.12 on; that is what they are about.
"""

from __future__ import annotations

import os

import pytest

from .support import Kind, run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")

FORK = """
import os, sys, threading, traceback, warnings

warnings.simplefilter("ignore", DeprecationWarning)

def in_child(body):
    '''Run `body` in a forked child that then ends as an interpreter does; return its exit status.'''
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            body()
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
            os._exit(70)
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_can_use_an_executor_of_its_own(kind: Kind) -> None:
    printed = run_python(
        kind,
        FORK
        + """
executor = Executor(2)
executor.submit(int).result()

def body():
    with Executor(2) as own:
        print(list(own.map(abs, [-1, -2])))

print("status", in_child(body))
print(executor.submit(abs, -3).result())
""",
    )
    assert printed == "[1, 2]\nstatus 0\n3\n"


def test_a_forked_child_can_use_an_executor_that_it_inherited(ours: Kind) -> None:
    """On the stdlib class the child counts the parent's workers as its own, and its call never runs."""
    printed = run_python(
        ours,
        FORK
        + """
executor = Executor(2)
executor.submit(int).result()

def body():
    print(executor.submit(abs, -1).result(20), list(executor.map(abs, [-2, -3])))
    executor.shutdown()

print("status", in_child(body))
print(executor.submit(abs, -4).result())
""",
    )
    assert printed == "1 [2, 3]\nstatus 0\n4\n"


def test_pending_calls_of_the_parent_run_in_the_parent_alone(ours: Kind) -> None:
    printed = run_python(
        ours,
        FORK
        + """
ran, gate, started = [], threading.Event(), threading.Event()
executor = Executor(1)
running = executor.submit(lambda: (started.set(), gate.wait()))
pending = [executor.submit(ran.append, number) for number in range(3)]
started.wait()

def body():
    gate.set()
    print("child", executor.submit(abs, -1).result(20))
    executor.shutdown()
    print("child ran", ran)

print("status", in_child(body))
print("parent ran", ran)
gate.set()
for future in pending:
    future.result(20)
print("parent ran", ran)
""",
    )
    assert printed == "child 1\nchild ran []\nstatus 0\nparent ran []\nparent ran [0, 1, 2]\n"


def test_the_statistics_of_a_forked_child_start_clean(ours: Kind) -> None:
    printed = run_python(
        ours,
        FORK
        + """
gate, started = threading.Event(), threading.Event()
executor = Executor(1)
executor.submit(lambda: (started.set(), gate.wait()))
executor.submit(int)
started.wait()

def body():
    now = executor.statistics()
    print(now.workers, now.idle, sum(now.queued.values()), now.running)

print("status", in_child(body))
gate.set()
""",
    )
    assert printed == "0 0 0 ()\nstatus 0\n"


def test_a_process_forked_by_a_worker_can_use_the_executor_and_ends(ours: Kind) -> None:
    """The child's only thread is the forked worker; before 3.14 the stdlib's exit hook joins it there."""
    printed = run_python(
        ours,
        FORK
        + """
import multiprocessing

executor = Executor(1)

def body():
    print("child", executor.submit(abs, -1).result(20), flush=True)

def fork():
    process = multiprocessing.get_context("fork").Process(target=body)
    process.start()
    process.join()
    return process.exitcode

print("status", executor.submit(fork).result(20))
print(executor.submit(abs, -2).result(20))
""",
    )
    assert printed == "child 1\nstatus 0\n2\n"


def test_a_child_forked_while_other_threads_submit_does_not_hang(kind: Kind) -> None:
    printed = run_python(
        kind,
        FORK
        + """
stop = threading.Event()
executor = Executor(2)

def submit():
    while not stop.is_set():
        executor.submit(int).result()

threads = [threading.Thread(target=submit) for _ in range(2)]
for thread in threads:
    thread.start()

def body():
    with Executor(1) as own:
        own.submit(int).result(20)

print({in_child(body) for _ in range(10)})
stop.set()
for thread in threads:
    thread.join()
""",
    )
    assert printed == "{0}\n"
