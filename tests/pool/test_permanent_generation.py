"""Long-lived objects are kept out of garbage collection while there is a loop; no garbage stays for ever."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from hybridrt import AdaptiveThreadPoolExecutor, Runtime
from hybridrt.control.collection import GROWTH, INVERSE_SHARE, LONGEST_NS, Whole, is_whole_due
from hybridrt.executor.budget import shared
from hybridrt.governor.permanent_generation import PermanentGeneration
from hybridrt.values import ShieldStatistics

pytestmark = pytest.mark.skipif(not hasattr(gc, "freeze"), reason="there is no permanent generation")

OLDEST = 2
THRESHOLD = (700, 10, 10)
PASS_NS = 30_000_000
BLOCKS = 1000
FIRST_NS = Whole(ended_ns=0, blocks=0).took_ns


class FakeCollector:
    """A collector that collects when the test says so; objects there are a number."""

    def __init__(self, clock: list[int]) -> None:
        self.callbacks: list[Any] = []
        self.count = (0, 0, 0)
        self.frozen = 0
        self.history: list[str] = []
        self._clock = clock

    def get_count(self) -> tuple[int, int, int]:
        return self.count

    def get_threshold(self) -> tuple[int, int, int]:
        return THRESHOLD

    def get_freeze_count(self) -> int:
        return self.frozen

    def freeze(self) -> None:
        self.history.append("freeze")

    def unfreeze(self) -> None:
        self.history.append("unfreeze")

    def collect(self) -> int:
        self.history.append("collect")
        self._clock[0] += PASS_NS
        return 0

    def begin(self, generation: int = OLDEST, *, asked: bool = False) -> None:
        self.count = (0, 0, 0) if asked else (701, 11, 11)
        self._tell("start", generation)
        self.count = (0, 0, 0)

    def end(self, generation: int = OLDEST) -> None:
        self._clock[0] += PASS_NS
        self._tell("stop", generation)

    def collects(self, generation: int = OLDEST, *, asked: bool = False) -> list[str]:
        """Collect by itself, and return what was done about it."""
        self.history.clear()
        self.begin(generation, asked=asked)
        self.end(generation)
        return self.history

    def _tell(self, phase: str, generation: int) -> None:
        for callback in list(self.callbacks):
            callback(phase, {"generation": generation, "collected": 0, "uncollectable": 0})


class Played:
    """A permanent generation whose collector and time are played by the test."""

    def __init__(self) -> None:
        self.clock = [0]
        self.collector = FakeCollector(self.clock)
        self.blocks = BLOCKS
        self.generation = PermanentGeneration(self.collector, lambda: self.clock[0], lambda: self.blocks)

    def passes(self, nanoseconds: int) -> None:
        self.clock[0] += nanoseconds


@pytest.fixture
def played() -> Played:
    return Played()


class WatchedList(list[Any]):
    """Notes in a history when something comes and goes."""

    def __init__(self, history: list[str]) -> None:
        super().__init__()
        self._history = history

    def append(self, each: Any) -> None:
        self._history.append("told")
        super().append(each)

    def remove(self, each: Any) -> None:
        self._history.append("not told")
        super().remove(each)


def test_nothing_is_frozen_where_a_collection_would_not_be_told_of(played: Played) -> None:
    """Another thread may call `gc.collect` in between, which would leave all of it out."""
    collector = played.collector
    collector.callbacks = WatchedList(collector.history)
    played.generation.use(wanted=True)
    assert collector.history == ["told", "freeze"]
    collector.history.clear()
    played.generation.use(wanted=False)
    assert collector.history == ["unfreeze", "not told"]


def test_all_objects_are_looked_at_for_a_small_share_of_the_time() -> None:
    last = Whole(ended_ns=7, took_ns=PASS_NS, blocks=BLOCKS)
    assert not is_whole_due(last, 6 + INVERSE_SHARE * PASS_NS, BLOCKS)
    assert is_whole_due(last, 7 + INVERSE_SHARE * PASS_NS, BLOCKS)


def test_a_process_that_was_stopped_in_a_collection_does_not_put_the_next_off_for_weeks() -> None:
    an_hour = Whole(ended_ns=0, took_ns=3600 * 10**9, blocks=BLOCKS)
    assert not is_whole_due(an_hour, INVERSE_SHARE * LONGEST_NS - 1, BLOCKS)
    assert is_whole_due(an_hour, INVERSE_SHARE * LONGEST_NS, BLOCKS)


def test_all_objects_are_looked_at_once_there_are_a_quarter_more() -> None:
    last = Whole(ended_ns=0, blocks=BLOCKS)
    assert not is_whole_due(last, 1, int(GROWTH * BLOCKS))
    assert is_whole_due(last, 1, int(GROWTH * BLOCKS) + 1)


def test_what_is_there_is_frozen_with_the_first_loop_and_thawed_with_the_last(played: Played) -> None:
    for _ in range(2):
        played.generation.use(wanted=True)
    assert played.collector.history == ["freeze"]
    for _ in range(2):
        played.generation.use(wanted=False)
    assert played.collector.history == ["freeze", "unfreeze"]
    assert played.collector.callbacks == []


def test_what_survives_a_full_collection_is_frozen(played: Played) -> None:
    played.generation.use(wanted=True)
    assert played.collector.collects() == ["freeze"]
    assert (played.generation.collections, played.generation.longest_ns) == (1, PASS_NS)


@pytest.mark.parametrize("generation", [0, 1])
def test_collections_of_the_young_are_left_alone(played: Played, generation: int) -> None:
    played.generation.use(wanted=True)
    assert played.collector.collects(generation) == []
    assert played.generation.collections == 0


def test_a_full_collection_looks_at_all_when_that_is_due_and_counts_from_there(played: Played) -> None:
    played.generation.use(wanted=True)
    played.passes(INVERSE_SHARE * FIRST_NS)
    assert played.collector.collects() == ["unfreeze", "freeze"]
    played.passes(INVERSE_SHARE * PASS_NS - PASS_NS)
    assert played.collector.collects() == ["freeze"]
    played.passes(PASS_NS)
    assert played.collector.collects() == ["unfreeze", "freeze"]


def test_memory_that_grows_is_looked_at_and_what_stays_is_the_new_measure(played: Played) -> None:
    played.generation.use(wanted=True)
    played.blocks = 2 * BLOCKS
    assert played.collector.collects() == ["unfreeze", "freeze"]
    assert played.collector.collects() == ["freeze"]
    played.blocks = 3 * BLOCKS
    assert played.collector.collects() == ["unfreeze", "freeze"]


def test_a_collection_that_is_asked_for_looks_at_all_and_leaves_all_to_be_seen(played: Played) -> None:
    played.generation.use(wanted=True)
    assert played.collector.collects(asked=True) == ["unfreeze"]
    assert played.collector.collects() == ["unfreeze", "freeze"]


def test_a_program_that_freezes_objects_itself_is_left_alone(played: Played) -> None:
    played.collector.frozen = 100_000
    played.generation.use(wanted=True)
    assert played.collector.collects() == []
    played.generation.use(wanted=False)
    assert played.collector.history == []


def test_the_few_that_an_interpreter_freezes_are_no_program(played: Played) -> None:
    played.collector.frozen = 375
    played.generation.use(wanted=True)
    assert played.collector.history == ["freeze"]


def test_other_code_clears_the_callbacks(played: Played) -> None:
    played.generation.use(wanted=True)
    played.collector.callbacks.clear()
    played.generation.use(wanted=False)
    assert played.collector.history == ["freeze", "unfreeze"]


def test_the_last_loop_goes_in_the_middle_of_a_collection(played: Played) -> None:
    played.generation.use(wanted=True)
    played.collector.begin()
    played.generation.use(wanted=False)
    played.collector.end()
    assert played.collector.history == ["freeze", "unfreeze"]


def test_the_last_loop_goes_while_another_thread_is_about_to_freeze(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    def freeze() -> None:
        played.generation.use(wanted=False)
        played.collector.history.append("freeze")

    played.generation.use(wanted=True)
    played.collector.begin()
    monkeypatch.setattr(played.collector, "freeze", freeze)
    played.collector.end()
    assert played.collector.history == ["freeze", "unfreeze", "freeze", "unfreeze"]


def test_a_loop_comes_in_the_middle_of_a_collection(played: Played) -> None:
    played.passes(10**18)
    played.collector.begin()
    played.generation.use(wanted=True)
    played.collector.end()
    assert played.collector.history == ["freeze", "freeze"]
    assert played.generation.longest_ns == PASS_NS


def test_before_a_loop_comes_again_all_is_looked_at_once_there_are_a_quarter_more(played: Played) -> None:
    played.generation.collect_if_due()
    for blocks, due in [(BLOCKS, False), (BLOCKS, False), (2 * BLOCKS, True), (2 * BLOCKS, False)]:
        played.blocks = blocks
        played.collector.history.clear()
        played.generation.collect_if_due()
        assert played.collector.history == ["collect"] * due
        played.generation.use(wanted=True)
        played.generation.collect_if_due()
        played.generation.use(wanted=False)
        assert played.collector.history == ["collect"] * due + ["freeze", "unfreeze"]


def test_before_a_loop_comes_again_all_is_looked_at_for_a_small_share_of_the_time(played: Played) -> None:
    played.generation.use(wanted=True)
    played.generation.use(wanted=False)
    played.passes(INVERSE_SHARE * FIRST_NS)
    played.generation.collect_if_due()
    played.passes(INVERSE_SHARE * PASS_NS - 1)
    played.generation.collect_if_due()
    assert played.collector.history == ["freeze", "unfreeze", "collect"]
    played.passes(1)
    played.generation.collect_if_due()
    assert played.collector.history == ["freeze", "unfreeze", "collect", "collect"]


# ---------------------------------------------------------------------- with the real collector


class Node:
    """Part of a cycle."""

    content: object = None

    def __init__(self) -> None:
        self.itself = self


def nodes() -> int:
    return sum(isinstance(each, Node) for each in gc.get_objects())


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


def frozen() -> bool:
    return gc.get_freeze_count() > 5000


async def test_a_runtime_freezes_and_thaws() -> None:
    callbacks = len(gc.callbacks)
    async with Runtime() as runtime:
        assert frozen()
        async with asyncio.TaskGroup() as group:
            group.create_task(_another_loop())
        assert frozen()
        assert isinstance(runtime.statistics().shield, ShieldStatistics)
    assert not frozen()
    assert len(gc.callbacks) == callbacks


async def _another_loop() -> None:
    await asyncio.to_thread(asyncio.run, _open_one())


async def _open_one() -> None:
    async with Runtime():
        assert frozen()


async def test_a_runtime_without_a_shield_leaves_the_collector_alone() -> None:
    async with Runtime(shield=False):
        assert not frozen()


async def test_the_executor_of_a_loop_freezes_as_a_runtime_does() -> None:
    with AdaptiveThreadPoolExecutor() as executor:
        await asyncio.get_running_loop().run_in_executor(executor, int)
        assert frozen()
    assert not frozen()


async def test_garbage_that_was_frozen_alive_is_collected_when_asked() -> None:
    kept = [Node() for _ in range(10)]
    async with Runtime() as runtime:
        before = runtime.statistics().shield
        assert nodes() == 0, "frozen objects are not listed"
        kept.clear()
        gc.collect()
        assert not frozen()
        after = runtime.statistics().shield
        assert before is not None
        assert after is not None
        assert after.collections > before.collections
        assert after.longest_collection > 0.0
    assert nodes() == 0


async def test_garbage_that_was_frozen_alive_is_collected_after_the_last_loop() -> None:
    kept = [Node()]
    async with Runtime():
        kept.clear()
    assert nodes() == 1
    gc.collect()
    assert nodes() == 0


async def test_garbage_that_was_frozen_alive_does_not_pile_up() -> None:
    alive: deque[Node] = deque(maxlen=50)

    def renew(count: int) -> None:
        for _ in range(count):
            alive.append(Node())
            alive[-1].content = [[number] for number in range(1000)]

    async with Runtime():
        renew(500)
        before = sys.getallocatedblocks()
        renew(5000)
        assert sys.getallocatedblocks() < 3 * before


async def test_garbage_does_not_pile_up_where_loops_come_and_go() -> None:
    async def come_and_go(count: int) -> None:
        for _ in range(count):
            async with Runtime():
                Node().content = [[number] for number in range(100)]

    await come_and_go(10)
    before = sys.getallocatedblocks()
    await come_and_go(2000)
    assert sys.getallocatedblocks() < 2 * before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
async def test_a_forked_child_has_nothing_frozen() -> None:
    async with Runtime():
        assert _frozen_in_a_child() == 0
        assert frozen()


def _frozen_in_a_child() -> int:
    child = os.fork()
    if child == 0:
        os._exit(int(frozen()))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


AT_EXIT = """
import asyncio, hybridrt

class Node:
    def __init__(self):
        self.itself = self
    def __del__(self):
        print("finalized")

node = Node()
loop = asyncio.new_event_loop()
loop.run_until_complete(hybridrt.Runtime().__aenter__())
"""


def test_at_the_interpreters_exit_frozen_garbage_is_finalized() -> None:
    found = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout.strip()) == (0, "finalized"), found.stderr


def test_ctrl_c_that_strikes_the_callback_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    generation = shared.shield._permanent
    assert generation is not None
    now_ns = generation._now_ns

    def interrupted() -> int:
        monkeypatch.setattr(generation, "_now_ns", now_ns)
        signal.raise_signal(signal.SIGINT)
        return now_ns()

    async def main() -> None:
        async with Runtime():
            monkeypatch.setattr(generation, "_now_ns", interrupted)
            gc.collect()
            await asyncio.sleep(60.0)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
