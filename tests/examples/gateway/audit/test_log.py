"""The log as coroutines use it: order, durability, failure, closing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from gateway.audit import AuditClosedError, AuditFailedError, AuditLockedError, AuditLog
from gateway.audit.scan import records_of, scan, segments_of

from tests.examples.gateway.audit.faults import FailingStorage


class GatedStorage(FailingStorage):
    """Lets an fsync pass when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.gate, self.count = threading.Event(), threading.Event(), 0

    def sync(self, descriptor: int) -> None:
        self.count += 1
        self.began.set()
        assert self.gate.wait(30)


async def test_records_are_numbered_chained_and_proved(tmp_path: Path) -> None:
    log = await AuditLog.open(tmp_path, segment_bytes=500)
    receipts = await asyncio.gather(*(log.append({"number": number}) for number in range(20)))
    await log.close()
    found = scan(tmp_path)
    assert [receipt.index for receipt in receipts] == list(range(20))
    assert [receipt.hash for receipt in receipts] == list(found.leaves)
    assert all(receipt.durable for receipt in receipts)
    assert (found.fault, found.chain.count) == (None, 20)
    assert log.head == (20, found.chain.mountains.head.hex())


async def test_a_log_goes_on_where_it_ended_and_its_segments_rotate(tmp_path: Path) -> None:
    for start in range(0, 30, 10):
        log = await AuditLog.open(tmp_path, segment_bytes=300)
        for number in range(start, start + 10):
            assert (await log.append({"number": number})).index == number
        await log.close()
    assert len(segments_of(tmp_path)) > 3
    assert scan(tmp_path).fault is None
    assert len(list(records_of(tmp_path))) == 30


async def test_a_strict_append_returns_after_an_fsync_that_many_share(
    tmp_path: Path,
) -> None:
    storage = GatedStorage()
    log = await AuditLog.open(tmp_path, storage=storage)
    first = asyncio.create_task(log.append({"number": 0}))
    await asyncio.to_thread(storage.began.wait, 30)
    others = [asyncio.create_task(log.append({"number": number})) for number in range(1, 50)]
    await asyncio.sleep(0)
    assert not first.done()
    storage.gate.set()
    await asyncio.gather(first, *others)
    assert storage.count == 3  # of the header, of the first record, of the 49 that gathered
    await log.close()


async def test_a_fast_append_returns_at_once_and_close_writes_it(tmp_path: Path) -> None:
    storage = GatedStorage()
    log = await AuditLog.open(tmp_path, storage=storage, durability="fast")
    receipt = await log.append({"number": 0})
    assert (receipt.index, receipt.durable, receipt.hash) == (0, False, None)
    storage.gate.set()
    await log.close()
    assert scan(tmp_path).chain.count == 1


async def test_a_batch_is_committed_when_it_is_full(tmp_path: Path) -> None:
    log = await AuditLog.open(tmp_path, batch_records=4, batch_seconds=3_600.0)
    receipts = await asyncio.gather(*(log.append({"number": number}) for number in range(8)))
    assert len(receipts) == 8
    await log.close()


async def test_append_waits_for_a_place_in_the_queue(tmp_path: Path) -> None:
    storage = GatedStorage()
    log = await AuditLog.open(tmp_path, storage=storage, durability="fast", queue_max=2)
    await log.append({"number": 0})
    await log.append({"number": 1})
    third = asyncio.create_task(log.append({"number": 2}))
    await asyncio.to_thread(storage.began.wait, 30)
    assert not third.done()
    third.cancel()
    await asyncio.wait([third])
    storage.gate.set()
    await log.close()
    assert scan(tmp_path).chain.count == 2


async def test_a_failed_fsync_fails_what_waits_and_all_after_it(tmp_path: Path) -> None:
    log = await AuditLog.open(tmp_path, storage=FailingStorage(syncs=2))
    assert (await log.append({"number": 0})).durable
    results = await asyncio.gather(
        *(log.append({"number": number}) for number in range(1, 9)), return_exceptions=True
    )
    assert all(isinstance(result, AuditFailedError) for result in results)
    with pytest.raises(AuditFailedError, match="Input/output error"):
        await log.append({"number": 9})
    with pytest.raises(AuditFailedError):
        await log.close()
    again = await AuditLog.open(tmp_path)
    assert again.head[0] >= 1
    await again.close()


async def test_a_record_that_is_no_json_is_refused_and_nothing_else_is(tmp_path: Path) -> None:
    log = await AuditLog.open(tmp_path)
    with pytest.raises(TypeError):
        await log.append({"number": object()})
    with pytest.raises(TypeError, match="a mapping with string keys, got list"):
        await log.append([1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most"):
        await log.append({"text": "x" * (2 << 20)})
    assert (await log.append({"number": 0})).index == 0
    await log.close()
    with pytest.raises(AuditClosedError):
        await log.append({"number": 1})


async def test_two_writers_are_refused(tmp_path: Path) -> None:
    log = await AuditLog.open(tmp_path)
    with pytest.raises(AuditLockedError, match="give each its own"):
        await AuditLog.open(tmp_path)
    await log.close()


async def test_wrong_options_say_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='"strict" or "fast", got \'slow\''):
        await AuditLog.open(tmp_path, durability="slow")
    with pytest.raises(ValueError, match="at least 1"):
        await AuditLog.open(tmp_path, batch_records=0)
