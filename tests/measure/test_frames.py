"""Frames of other threads, on a Python that collects garbage wherever memory is asked for, and on others."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from textwrap import dedent

import pytest

from hybridrt.measure import frames
from hybridrt.measure.frames import stack_of, top_frames


@pytest.fixture(autouse=True)
def _collects_anywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(frames, "COLLECTS_ANYWHERE", True)
    yield
    assert gc.isenabled()


def test_the_innermost_frame_comes_first() -> None:
    def inner() -> list[str]:
        return [frame.f_code.co_name for frame in stack_of(threading.get_ident())]

    assert [name for name in inner() if name in (inner.__name__, "test_the_innermost_frame_comes_first")] == [
        "inner",
        "test_the_innermost_frame_comes_first",
    ]


class _Thing:
    pass


def test_frames_of_others_keep_nothing_once_they_are_forgotten() -> None:
    """Not even until garbage is collected: the caller's own frame is not among them."""
    thing, died, go_on = _Thing(), threading.Event(), threading.Event()
    weakref.finalize(thing, died.set)

    def look(other: int | None) -> None:
        found = top_frames()
        assert other in found
        assert threading.get_ident() not in found

    def hold(held: _Thing) -> None:
        assert go_on.wait(30.0)

    gc.disable()
    try:
        thread = threading.Thread(target=hold, args=(thing,))
        del thing
        thread.start()
        look(thread.ident)
        go_on.set()
        thread.join()
        del thread
        assert died.wait(30.0)
    finally:
        gc.enable()


def test_a_thread_without_a_frame_has_an_empty_stack() -> None:
    assert stack_of(0) == []


def test_no_garbage_is_collected_meanwhile_and_it_is_afterwards() -> None:
    assert frames._uncollected(gc.isenabled) is False
    assert gc.isenabled()


def test_an_error_leaves_the_collector_on() -> None:
    with pytest.raises(ZeroDivisionError):
        frames._uncollected(lambda: 1 // 0)


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        top_frames()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_read_within_a_read_leaves_the_collector_off() -> None:
    """As that of a signal handler."""
    assert frames._uncollected(lambda: (frames._uncollected(int), gc.isenabled())) == (0, False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_collects_garbage_although_another_thread_was_reading() -> None:
    source = """
        import gc, os, threading
        from hybridrt.measure import frames
        os.register_at_fork(after_in_child=frames._collector.start_clean)
        frames.COLLECTS_ANYWHERE = True
        reads, forked = threading.Event(), threading.Event()
        def read():
            reads.set()
            forked.wait()
        reader = threading.Thread(target=frames._uncollected, args=(read,))
        reader.start()
        reads.wait()
        child = os.fork()
        if not child:
            frames.top_frames()
            os._exit(0 if gc.isenabled() else 3)
        forked.set()
        reader.join()
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", dedent(source)], timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_frames_are_read_while_finalizers_switch_threads() -> None:
    """Without the pause of the collector this ends CPython 3.11 in half of the runs."""
    source = """
        import gc, runpy, sys, threading, time
        stack_of = runpy.run_path(sys.argv[1])["stack_of"]  # alone: the fewer objects, the more collections
        class Finalized:
            def __init__(self):
                self.itself = self
            def __del__(self):
                for _ in range(20):
                    pass
        def recurse(depth):
            Finalized()
            if depth:
                recurse(depth - 1)
            return [Finalized() for _ in range(2)]
        def work():
            while not over:
                recurse(8)
        over = False
        sys.setswitchinterval(1e-6)
        gc.set_threshold(20)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 2
        while time.monotonic() < until:
            for frame in stack_of(threads[0].ident):
                frame.f_code
        over = True
    """
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", dedent(source), frames.__file__],
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
