"""Kills, torn writes, flipped bits, short writes, full disks: nothing acknowledged is ever lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from gateway.audit import AuditBrokenError, AuditLog
from gateway.audit.scan import segments_of

from tests.examples.gateway.audit.faults import one_round, write_log
from tests.examples.gateway.audit.kills import kill_a_writer


def test_two_hundred_faults_lose_no_acknowledged_record(tmp_path: Path) -> None:
    struck = {one_round(tmp_path / "log", seed) for seed in range(200)}
    assert len(struck) == 6


@pytest.mark.slow
def test_killed_writers_leave_every_acknowledged_record(tmp_path: Path) -> None:
    dice = random.Random(5)
    for _ in range(3):
        assert kill_a_writer(tmp_path, dice)


async def test_opening_says_what_an_interrupted_write_left(tmp_path: Path) -> None:
    count = write_log(tmp_path, random.Random(1))
    path = segments_of(tmp_path)[-1]
    path.write_bytes(path.read_bytes() + b"AUD1\0\0")
    log = await AuditLog.open(tmp_path)
    (cut,) = log.cuts
    assert str(cut) == f"moved 6 bytes, from record {count} on, out of {path.name} into {path.name}-1.cut"
    assert cut.target.read_bytes() == b"AUD1\0\0"
    assert (await log.append({"number": 0})).index == count
    await log.close()


async def test_a_log_that_is_damaged_in_its_middle_is_not_opened(tmp_path: Path) -> None:
    write_log(tmp_path, random.Random(25))
    path = segments_of(tmp_path)[-1]
    content = path.read_bytes()
    first = content.index(b"AUD1", 4)
    path.write_bytes(content[: first + 20] + b"?" + content[first + 21 :] + content[first:])
    with pytest.raises(AuditBrokenError, match="run verify, then repair"):
        await AuditLog.open(tmp_path)
