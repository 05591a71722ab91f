"""What a machine may do to an audit log; each fault says what must hold afterwards."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from gateway.audit.errors import AuditFailedError
from gateway.audit.mountains import prove, proves
from gateway.audit.records import encode_body
from gateway.audit.recovery import recover, repair
from gateway.audit.scan import Scan, scan, segments_of
from gateway.audit.storage import SystemStorage
from gateway.audit.writer import Writer

__all__ = ["FAULTS", "FailingStorage", "write_log"]


class FailingStorage(SystemStorage):
    """The operating system with little room: takes parts of writes, and refuses from a byte on.

    Nothing is synced, which makes thousands of rounds quick.
    """

    def __init__(self, room: int | None = None, part: int | None = None, syncs: int | None = None) -> None:
        self.room, self.part, self.syncs = room, part, syncs

    def write(self, descriptor: int, content: memoryview) -> int:
        if self.part is not None:
            content = content[: self.part]
        if self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            content = content[: self.room]
            self.room -= len(content)
        return super().write(descriptor, content)

    def sync(self, descriptor: int) -> None:
        if self.syncs is not None:
            if not self.syncs:
                raise OSError(errno.EIO, "Input/output error")
            self.syncs -= 1

    def sync_folder(self, folder: Path) -> None:
        pass


def write_log(folder: Path, dice: random.Random) -> int:
    """Write a log of some segments and return how many records were acknowledged."""
    writer = Writer(folder, segment_bytes=dice.randrange(300, 3_000), storage=FailingStorage())
    for _ in range(dice.randrange(1, 8)):
        writer.commit([_body(dice) for _ in range(dice.randrange(1, 6))])
    count = writer.chain.count
    writer.close()
    return count


def _body(dice: random.Random) -> bytes:
    return encode_body({"tokens": dice.randrange(1_000), "text": "x" * dice.randrange(120)})


def _holds(folder: Path, acknowledged: int) -> Scan:
    found = scan(folder)
    assert found.fault is None, found.fault
    assert found.chain.count >= acknowledged, (found.chain.count, acknowledged)
    index = acknowledged - 1
    proof = prove(found.leaves, index)
    assert proves(proof, found.leaves[index], found.chain.mountains.head)
    return found


def cut_in_a_write(folder: Path, acknowledged: int, dice: random.Random) -> None:
    """The process is killed in the middle of a write: a part of a frame, or rubbish, ends the last file."""
    path = segments_of(folder)[-1]
    before = path.read_bytes()
    writer = Writer(folder, storage=FailingStorage())
    writer.commit([_body(dice) for _ in range(dice.randrange(1, 4))])
    writer.close()
    written = path.read_bytes() if path.exists() else b""
    kept = dice.randrange(len(before), len(written) + 1)
    rubbish = dice.randbytes(dice.randrange(40)) if dice.random() < 0.3 else b""
    path.write_bytes(written[:kept] + rubbish)
    recover(folder)
    _holds(folder, acknowledged)


def killed_while_a_segment_begins(folder: Path, acknowledged: int, dice: random.Random) -> None:
    """The process is killed before the header of a new file is whole."""
    (folder / f"{acknowledged:020d}.audit").write_bytes(
        dice.choice((b"", b"AUD1", b"AUD1\0\0\0\x40\1\2\3\4{"))
    )
    recover(folder)
    _holds(folder, acknowledged)


def bit_flipped(folder: Path, acknowledged: int, dice: random.Random) -> None:
    """A bit changes somewhere: verify names the record, and repair keeps all that stand before it."""
    path = dice.choice(segments_of(folder))
    content = bytearray(path.read_bytes())
    position = dice.randrange(len(content))
    content[position] ^= 1 << dice.randrange(8)
    path.write_bytes(content)
    found = scan(folder)
    assert found.fault is not None
    assert f"record {found.at}" in found.fault
    assert found.place is not None
    assert found.place[0] == path
    assert found.place[1] <= position
    repair(folder)
    if found.at:
        _holds(folder, found.at)
    assert scan(folder).chain.count == found.at


def short_writes(folder: Path, acknowledged: int, dice: random.Random) -> None:
    """The operating system takes a few bytes at a time."""
    writer = Writer(folder, storage=FailingStorage(part=dice.randrange(1, 50)))
    writer.commit([_body(dice) for _ in range(3)])
    writer.close()
    assert _holds(folder, acknowledged + 3).chain.count == acknowledged + 3


def full_disk(folder: Path, acknowledged: int, dice: random.Random) -> None:
    """The disk is full in the middle of a commit: it fails, so do those after it, nothing before is lost."""
    writer = Writer(folder, segment_bytes=1 << 20, storage=FailingStorage(room=dice.randrange(700)))
    done = acknowledged
    try:
        while True:
            writer.commit([_body(dice)])
            done += 1
    except AuditFailedError:
        pass
    try:
        writer.commit([_body(dice)])
    except AuditFailedError:
        pass
    else:
        raise AssertionError("a failed log took a record")
    writer.close()
    recover(folder)
    _holds(folder, done)


def failed_sync(folder: Path, acknowledged: int, dice: random.Random) -> None:
    """An fsync fails: the record is not acknowledged, and the log takes no more."""
    writer = Writer(folder, segment_bytes=1 << 20, storage=FailingStorage(syncs=dice.randrange(3)))
    done = acknowledged
    try:
        while True:
            writer.commit([_body(dice)])
            done += 1
    except AuditFailedError:
        pass
    writer.close()
    recover(folder)
    _holds(folder, done)


FAULTS: tuple[Callable[[Path, int, random.Random], None], ...] = (
    cut_in_a_write,
    killed_while_a_segment_begins,
    bit_flipped,
    short_writes,
    full_disk,
    failed_sync,
)


def one_round(folder: Path, seed: int) -> str:
    """Write a log into an empty folder, let one fault strike it and check it; return the fault's name."""
    dice = random.Random(seed)
    fault = dice.choice(FAULTS)
    acknowledged = write_log(folder, dice)
    try:
        fault(folder, acknowledged, dice)
    except BaseException as error:
        error.add_note(f"seed {seed}, {fault.__name__}, {acknowledged} records acknowledged")
        raise
    shutil.rmtree(folder)
    return fault.__name__
