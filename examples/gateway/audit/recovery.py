"""Opening a log again after a kill, and repairing a broken one. Bytes are moved aside, never thrown away.

A kill leaves at most one interrupted write at the end of the last segment. `recover` moves it into a file
beside the segment and says so. What it finds damaged in the middle it refuses: that is no kill, and a
person decides (`repair`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .errors import AuditBrokenError
from .lock import lock_folder
from .records import Chain
from .scan import Segment, read_segment, scan, segments_of
from .storage import SystemStorage

__all__ = ["Cut", "Recovered", "recover", "repair"]

ASIDE = ".cut"
"""End of the names of files with what was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What was moved aside.

    Attributes:
        source: The file that it stood in.
        target: The file that it stands in now.
        size: Bytes.
        index: Number of the first record that is not there any more.
    """

    source: Path
    target: Path
    size: int
    index: int

    def __str__(self) -> str:
        return (
            f"moved {self.size} bytes, from record {self.index} on, out of {self.source.name} "
            f"into {self.target.name}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """How writing goes on.

    Attributes:
        chain: The end of the log.
        name: Of the chain; None if the log is new.
        path: The segment to append to; None if the log is new.
        size: Its bytes.
        cuts: What was moved aside.
    """

    chain: Chain
    name: str | None
    path: Path | None
    size: int
    cuts: tuple[Cut, ...]


def recover(folder: Path) -> Recovered:
    """Return the end of a log after moving the remains of an interrupted write aside.

    Reads the last segment alone, whose header says how the older ones ended; `scan` reads them all.

    Raises:
        AuditBrokenError: The last segment is damaged in its middle.
    """
    cuts: list[Cut] = []
    for path in reversed(segments_of(folder)):
        segment = read_segment(path)
        if segment.header is None:
            if segment.frames or not (segment.torn or not segment.size):
                raise AuditBrokenError(f"{path.name} has no sound header; run verify", 0)
            cuts.append(_cut(path, 0, int(path.stem)))  # killed while it was made
            continue
        chain = _follow(segment)
        if segment.whole < segment.size:
            cuts.append(_cut(path, segment.whole, chain.count))
        return Recovered(
            chain=chain, name=segment.header.chain, path=path, size=segment.whole, cuts=tuple(cuts)
        )
    return Recovered(chain=Chain(), name=None, path=None, size=0, cuts=tuple(cuts))


def repair(folder: Path) -> list[Cut]:
    """Move everything from the first damage on aside; return what was moved, nothing if the log is sound.

    Raises:
        AuditLockedError: Another process writes to it.
    """
    lock = lock_folder(folder)
    try:
        return _repair(folder)
    finally:
        os.close(lock)


def _repair(folder: Path) -> list[Cut]:
    found = scan(folder)
    if found.place is None:
        return []
    broken, offset = found.place
    paths = segments_of(folder)
    later = paths[paths.index(broken) + 1 :]
    cuts = [_cut(path, 0, int(path.stem)) for path in reversed(later)]  # the last first: a kill leaves no gap
    return [*cuts, _cut(broken, offset, found.at)]


def _follow(segment: Segment) -> Chain:
    header = segment.header
    assert header is not None
    chain = Chain(header.first, header.previous, header.peaks)
    for frame in segment.frames:
        if not chain.follows(frame.payload):
            message = f"record {chain.count} in {segment.path.name} does not follow the one before it"
            raise AuditBrokenError(f"{message}; run verify", chain.count)
    if segment.whole < segment.size and not segment.torn:
        message = f"record {chain.count} in {segment.path.name} is damaged and others follow it"
        raise AuditBrokenError(f"{message}; run verify, then repair", chain.count)
    return chain


def _cut(path: Path, offset: int, index: int) -> Cut:
    """Move the bytes of a file from an offset on into a file of their own; safe against a kill at any point.

    1. The copy is written and on the disk.
    2. The file is shortened, or removed if nothing of it stays.
    A kill between 1 and 2 leaves both, and the next time the same bytes go into one more copy.
    """
    content = path.read_bytes()[offset:]
    target = _free_name(path)
    with target.open("xb") as copy:
        copy.write(content)
        copy.flush()
        os.fsync(copy.fileno())
    if offset:
        with path.open("rb+") as file:
            file.truncate(offset)
            os.fsync(file.fileno())
    else:
        path.unlink()
    SystemStorage().sync_folder(path.parent)
    return Cut(source=path, target=target, size=len(content), index=index)


def _free_name(path: Path) -> Path:
    number = 1
    while (target := path.with_name(f"{path.name}-{number}{ASIDE}")).exists():
        number += 1
    return target
