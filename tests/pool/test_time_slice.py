"""The thread of a loop has the least time slice, and nothing else has."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Runtime, offload
from hybridrt.pool import time_slice
from hybridrt.pool.time_slice import LEAST_NS, ShortSlices, slice_of, take_usual

from .shielding import FakeWatch, Play

USUAL = slice_of(threading.get_native_id())


def can_have_one() -> bool:
    """Return True if a thread gets the slice that it asks for."""
    number = threading.get_native_id()
    ShortSlices().keep({number})
    return slice_of(number) == LEAST_NS


with ThreadPoolExecutor(1) as trying:
    ABLE = trying.submit(can_have_one).result()

pytestmark = pytest.mark.skipif(not ABLE, reason="threads have no time slice of their own here")


def here() -> int | None:
    """Return the slice of the thread that calls."""
    return slice_of(threading.get_native_id())


def here_in_a_while() -> int | None:
    """The same, from a thread that others start beside."""
    time.sleep(0.005)
    return here()


def watch(*, shield: bool = True) -> FakeWatch:
    """Return the watch of a loop in this thread."""
    made = FakeWatch(shield=shield)
    made.native_id = threading.get_native_id()
    return made


def in_a_process() -> int | None:
    """Return the slice of a process that the calling thread starts."""
    source = "import threading; from hybridrt.pool.time_slice import slice_of; "
    source += "print(slice_of(threading.get_native_id()))"
    return int(subprocess.run([sys.executable, "-c", source], check=True, capture_output=True).stdout)


async def test_the_loop_has_a_short_slice_and_the_threads_that_it_starts_have_not() -> None:
    async with Runtime():
        assert here() == LEAST_NS
        found = await asyncio.gather(*(offload(here_in_a_while)() for _ in range(30)))
    assert set(found) == {USUAL}
    assert here() == USUAL


async def test_what_a_call_starts_has_the_usual_slice() -> None:
    async with Runtime():
        assert await offload(in_a_process)() == USUAL


async def test_an_isolate_has_the_usual_slice() -> None:
    async with Runtime():
        assert await offload(pure=True, where="isolate")(here)() == USUAL


def test_a_bare_executor_shortens_the_slice_of_the_loop_that_submits_until_that_ends() -> None:
    async def submit(executor: AdaptiveThreadPoolExecutor) -> tuple[int | None, int | None]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(executor, here), here()

    with AdaptiveThreadPoolExecutor() as executor:
        assert executor.submit(here).result() == USUAL
        assert asyncio.run(submit(executor)) == (USUAL, LEAST_NS)
    assert here() == USUAL


def test_the_last_loop_of_a_thread_gives_the_slice_back() -> None:
    play, loops = Play(), [watch(), watch()]
    for loop in loops:
        play.shield.join(loop)
    play.shield.leave(loops[0])
    assert here() == LEAST_NS
    play.shield.leave(loops[1])
    assert here() == USUAL


async def test_a_user_who_forbids_the_shield_keeps_the_slice() -> None:
    async with Runtime(shield=False):
        assert here() == USUAL


def test_a_user_who_forbids_it_later_has_it_back() -> None:
    play = Play()
    play.shield.join(watch())
    play.shield.join(watch(shield=False))
    assert here() == USUAL


def test_it_is_short_again_when_the_one_who_forbade_it_has_left() -> None:
    play, forbids = Play(), watch(shield=False)
    first = watch()
    play.shield.join(first)
    play.shield.join(forbids)
    play.shield.leave(forbids)
    assert here() == LEAST_NS
    play.shield.leave(first)
    assert here() == USUAL


def test_a_loop_that_is_lost_without_a_close_gives_it_back() -> None:
    play = Play()
    lost, first = [watch()], watch()
    first.native_id = -1  # another thread's
    play.shield.join(first)
    play.shield.join(lost[0])
    lost.clear()
    gc.collect()
    play.shield.rest()
    assert here() == USUAL


def test_a_slice_that_the_user_has_set_comes_back() -> None:
    slices = ShortSlices()
    with ThreadPoolExecutor(1) as pool:
        number = pool.submit(threading.get_native_id).result()
        assert time_slice._set(number, 700_000)
        slices.keep({number})
        slices.keep({number})
        assert slice_of(number) == LEAST_NS
        slices.keep(set())
        assert slice_of(number) == 700_000
        slices.keep(set())
        take_usual(number)
        assert slice_of(number) == 700_000


def test_one_that_is_as_short_already_stays_so() -> None:
    slices = ShortSlices()
    with ThreadPoolExecutor(1) as pool:
        number = pool.submit(threading.get_native_id).result()
        assert time_slice._set(number, LEAST_NS)
        slices.keep({number})
        slices.keep(set())
        assert slice_of(number) == LEAST_NS


def slice_of_a_forked_child() -> int:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, str(here()).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as file:
        return int(file.read())


async def test_a_forked_child_has_the_usual_slice() -> None:
    async with Runtime():
        assert slice_of_a_forked_child() == USUAL


async def test_a_sandbox_that_forbids_it_stops_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice, "system_call", lambda *_: False)
    async with Runtime():
        assert await offload(here)() is None


def test_a_thread_that_has_gone_has_none() -> None:
    with ThreadPoolExecutor(1) as pool:
        number = pool.submit(threading.get_native_id).result()
    time.sleep(0.05)
    assert slice_of(number) is None
    take_usual(number)


def test_a_thread_that_the_user_schedules_otherwise_is_left_alone() -> None:
    def batch() -> tuple[int | None, int]:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        number = threading.get_native_id()
        ShortSlices().keep({number})
        return slice_of(number), os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(batch).result() == (None, os.SCHED_BATCH)
