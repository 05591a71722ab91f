"""A call that holds the GIL for long lets a loop that works go first, for a bounded time."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hybridrt.pool import loop_first
from hybridrt.pool.loop_first import MOST_NS, REST_NS, TIMES, LoopFirst

from .support import DEADLINE

USUAL_NS = 5_000_000


class Watch:
    """A loop that runs what it is asked for when the test says."""

    def __init__(self) -> None:
        self.runs, self.here = True, False
        self.used_ns: int | None = 0
        self.ready: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> bool:
        if self.runs:
            self.ready.append(callback)
        return self.runs

    def runs_here(self) -> bool:
        return self.here

    def cpu_ns(self) -> int | None:
        return self.used_ns

    def iterate(self) -> None:
        self.ready.popleft()()


class Scene:
    """A call that asks, in a time that the test lets pass while the call waits."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.first = LoopFirst()
        self.watch = Watch()
        self.first.join_locked(self.watch)
        self.waits: list[float] = []
        self.meanwhile: Iterator[None] = iter(())

    def event(self) -> Event:
        return Event(self)

    def give_way(self, usual_ns: int = USUAL_NS) -> None:
        self.first.give_way(usual_ns)

    def iteration(self, after_ns: int) -> None:
        """Let one iteration of the loop begin, so many nanoseconds later."""
        self.now_ns += after_ns
        self.watch.iterate()


class Event:
    """One that the test's thread waits for itself: what happens meanwhile is the scene's."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        self._scene.waits.append(timeout)
        while not self._set and next(self._scene.meanwhile, self) is None:
            pass
        return self._set


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene()
    monkeypatch.setattr(loop_first, "Event", scene.event)
    monkeypatch.setattr(loop_first, "perf_counter_ns", lambda: scene.now_ns)
    return scene


def iterations(scene: Scene, *after_ns: int) -> None:
    """Let the loop's iterations begin at such distances while the call waits."""
    scene.meanwhile = (scene.iteration(each) for each in after_ns)


def test_without_a_loop_nothing_is_waited_for() -> None:
    first = LoopFirst()
    first.give_way(USUAL_NS)
    assert (first.known, first.calls) == (False, 0)


def test_a_loop_at_rest_answers_in_its_next_iteration(scene: Scene) -> None:
    iterations(scene, REST_NS - 1)
    scene.give_way()
    assert (len(scene.waits), scene.first.calls) == (1, 0)
    assert not scene.watch.ready


def test_a_loop_that_works_answers_after_an_iteration_that_was_short(scene: Scene) -> None:
    iterations(scene, 2_000_000, REST_NS, REST_NS - 1)
    scene.give_way()
    assert scene.first.calls == 1
    assert not scene.watch.ready


def test_it_waits_for_some_times_the_usual_time_of_the_call_and_never_longer_than_the_bound(
    scene: Scene,
) -> None:
    scene.give_way(USUAL_NS)
    scene.iteration(0)
    scene.give_way(10 * MOST_NS)
    assert scene.waits == [TIMES * USUAL_NS / 1e9, MOST_NS / 1e9]


def test_a_question_that_nobody_waits_for_any_more_asks_no_further_iteration(scene: Scene) -> None:
    iterations(scene, REST_NS)
    scene.give_way()
    scene.iteration(REST_NS)
    assert not scene.watch.ready


def test_a_blocked_loop_is_not_asked_again_until_it_has_answered(scene: Scene) -> None:
    scene.give_way()
    scene.give_way()
    assert len(scene.waits) == 1
    scene.iteration(0)
    scene.give_way()
    assert len(scene.waits) == 2


def test_a_loop_that_computes_or_waits_for_the_gil_is_asked_again(scene: Scene) -> None:
    """One long iteration; a thread that waits for the GIL wakes now and then."""
    scene.meanwhile = (compute(scene) for _ in range(1))
    scene.give_way()
    scene.give_way()
    assert len(scene.waits) == 2


def compute(scene: Scene) -> None:
    scene.watch.used_ns = 10_000


def test_without_a_cpu_clock_a_loop_that_has_not_answered_counts_as_blocked(scene: Scene) -> None:
    scene.watch.used_ns = None
    scene.give_way()
    scene.give_way()
    assert len(scene.waits) == 1


def test_a_loop_that_does_not_run_is_not_waited_for(scene: Scene) -> None:
    scene.watch.runs = False
    scene.give_way()
    assert scene.waits == []


def test_the_loop_of_the_asking_thread_is_not_asked(scene: Scene) -> None:
    """It would wait for itself: `asyncio.run` in an offloaded function, with a runtime."""
    scene.watch.here = True
    scene.give_way()
    assert (scene.waits, list(scene.watch.ready)) == ([], [])


def test_calls_that_are_counted_while_another_one_waits_stay_counted(scene: Scene) -> None:
    scene.meanwhile = (others_wait(scene, calls=5) for _ in range(1))
    scene.give_way()
    assert scene.first.calls == 6


def others_wait(scene: Scene, calls: int) -> None:
    scene.first.calls += calls
    for _ in range(2):
        scene.iteration(REST_NS)
    scene.iteration(0)


def test_a_loop_that_stops_while_it_is_asked_answers(scene: Scene) -> None:
    scene.meanwhile = (stop_and_iterate(scene) for _ in range(1))
    scene.give_way()
    assert scene.waits != []
    assert not scene.watch.ready


def stop_and_iterate(scene: Scene) -> None:
    scene.watch.runs = False
    scene.iteration(REST_NS)


def test_all_loops_together_are_waited_for_no_longer_than_one(scene: Scene) -> None:
    other = Watch()
    scene.first.join_locked(other)
    iterations(scene, 3_000_000)
    scene.give_way()
    assert scene.waits[0] - scene.waits[1] == pytest.approx(0.003)


def test_a_loop_that_has_left_is_known_no_more(scene: Scene) -> None:
    scene.first.leave_locked(scene.watch)
    scene.give_way()
    assert (scene.waits, scene.first.known) == ([], False)


def test_a_loop_whose_watch_has_gone_is_not_asked(scene: Scene) -> None:
    scene.watch = Watch()
    gc.collect()
    scene.give_way()
    assert scene.waits == []
    assert scene.first.known
    scene.first.forget_lost_locked()
    assert not scene.first.known


@pytest.mark.race
def test_several_calls_may_ask_one_loop_at_a_time() -> None:
    """Some are answered while they begin to wait, and some when their time is over."""
    first, watch = LoopFirst(), Watch()
    first.join_locked(watch)
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(first.give_way, usual_ns) for usual_ns in (1 << 60, 1 << 60, 0, 100_000)]
        while not all(each.done() for each in asking):
            if watch.ready:
                watch.iterate()
        for each in asking:
            each.result(DEADLINE)
    while watch.ready:
        watch.iterate()
