"""`blocking()`: a call that says it waits gives its permit to another call at once.

The runtime would find out by itself; so these tests stop the governor from looking.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from hybridrt import Runtime, blocking, offload
from hybridrt.executor.budget import shared

from .support import DEADLINE, Gate, queued, turns


@pytest.fixture
def blind_governor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the governor from looking at calls: only `blocking` moves permits."""
    monkeypatch.setattr("hybridrt.governor.governor.sample_pool", lambda *_: False)
    monkeypatch.setattr("hybridrt.pool.rebalance.OVERDRAFT_NS", 1 << 60)
    yield
    assert shared.permits.held[1:] == [0, 0, 0]


def wait_inside(gate: Gate, name: str) -> str:
    with blocking():
        gate(name)
    return name


@pytest.mark.usefixtures("blind_governor")
async def test_without_blocking_a_second_unknown_call_does_not_start() -> None:
    """The control of the next test: here the permit stays with the call that waits."""
    async with Runtime() as runtime, Gate() as gate:
        tasks = [asyncio.ensure_future(offload(gate)(n)) for n in range(2)]
        assert await gate.entered() == 0
        await turns()
        assert (queued(runtime), gate.is_empty()) == (1, True)
        gate.release()
        assert await asyncio.gather(*tasks) == [0, 1]


@pytest.mark.usefixtures("blind_governor")
async def test_another_computing_call_starts_while_one_is_inside() -> None:
    async with Runtime(), Gate() as gate:
        waiting = asyncio.ensure_future(offload(wait_inside)(gate, "waiting"))
        assert await gate.entered() == "waiting"
        assert await offload(sum)(range(1000)) == 499500
        assert not waiting.done()
        gate.release()
        assert await waiting == "waiting"


@pytest.mark.usefixtures("blind_governor")
async def test_leaving_takes_the_permit_back_without_waiting_for_it() -> None:
    """Another call holds the permit by then; the one that leaves goes on all the same."""
    async with Runtime(), Gate() as gate, Gate() as computing:
        first = asyncio.ensure_future(offload(wait_inside)(gate, "first"))
        await gate.entered()
        second = asyncio.ensure_future(offload(computing)())
        await computing.entered()
        gate.release()
        assert await first == "first"
        assert not second.done()
        computing.release()
        await second


@pytest.mark.usefixtures("blind_governor")
async def test_after_it_no_other_computing_call_starts() -> None:
    def wait_and_compute(waiting: Gate, computing: Gate) -> None:
        with blocking():
            waiting()
        computing()

    async with Runtime() as runtime, Gate() as waiting, Gate() as computing:
        task = asyncio.ensure_future(offload(wait_and_compute)(waiting, computing))
        await waiting.entered()
        assert sum(shared.permits.held) == 0
        waiting.release()
        await computing.entered()
        assert sum(shared.permits.held) == 1
        other = asyncio.ensure_future(offload(len)("abc"))
        await turns()
        assert queued(runtime) == 1
        computing.release()
        await task
        assert await other == 3


@pytest.mark.usefixtures("blind_governor")
async def test_blocks_nest() -> None:
    def nested(gate: Gate) -> None:
        with blocking(), blocking():
            gate("inside")
        with blocking():
            gate("again")

    async with Runtime(), Gate() as gate:
        task = asyncio.ensure_future(offload(nested)(gate))
        await gate.entered()
        assert await offload(len)("abc") == 3
        gate.release()
        await task


@pytest.mark.usefixtures("blind_governor")
async def test_an_error_inside_takes_the_permit_back_too() -> None:
    def fail() -> None:
        with blocking():
            raise LookupError

    async with Runtime():
        with pytest.raises(LookupError):
            await offload(fail)()
        assert await offload(len)("abc") == 3


async def test_outside_of_a_call_it_has_no_effect() -> None:
    with blocking():
        held = list(shared.permits.held)
    assert held == shared.permits.held == [0, 0, 0, 0]


def test_in_a_thread_of_ones_own_it_has_no_effect() -> None:
    def work() -> None:
        with blocking():
            done.set()

    done = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(DEADLINE)
    assert done.is_set()
