"""Reading a log: what is whole, what is torn, what is broken. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .frames import Frame, has_frame, read_frames
from .mountains import leaf_hash
from .records import Chain, Header, decode_header

__all__ = [
    "SUFFIX",
    "Scan",
    "Segment",
    "chain_folders",
    "read_segment",
    "records_of",
    "scan",
    "segment_name",
    "segments_of",
]

SUFFIX = ".audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One file of a log as it was read.

    Attributes:
        path: The file.
        header: How it begins; None if that is torn or damaged.
        frames: Its whole frames after the header, up to the first damage.
        size: Its length in bytes.
        whole: Bytes up to the end of the last whole frame.
        torn: What stands behind `whole` is the remains of one interrupted write: no whole frame follows.
    """

    path: Path
    header: Header | None
    frames: tuple[Frame, ...]
    size: int
    whole: int
    torn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a whole log is like.

    Attributes:
        chain: The end of what is sound: records, last hash, peaks.
        name: Of the chain; None if it has no segment.
        leaves: Hashes of the sound records, by number.
        segments: Number of files that were read.
        fault: What is wrong, in words; None if nothing is.
        place: The file and the offset in it from which on nothing is sound.
        torn: The fault is only what an interrupted write leaves at the end of the last file.
    """

    chain: Chain
    name: str | None
    leaves: tuple[bytes, ...]
    segments: int
    fault: str | None = None
    place: tuple[Path, int] | None = None
    torn: bool = False

    @property
    def at(self) -> int:
        """Number of the record at which the fault is."""
        return self.chain.count


def segment_name(first: int) -> str:
    """Return the name of the file that begins with a record; names sort like their records."""
    return f"{first:020d}{SUFFIX}"


def segments_of(folder: Path) -> list[Path]:
    """Return the files of a log in their order."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def chain_folders(folder: Path) -> list[Path]:
    """Return the folders at or directly below a folder that hold a log."""
    candidates = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    return [path for path in candidates if segments_of(path)]


def read_segment(path: Path) -> Segment:
    """Read one file."""
    content = path.read_bytes()
    frames = tuple(read_frames(content))
    header = decode_header(frames[0].payload) if frames else None
    whole = frames[-1].end if frames else 0
    return Segment(
        path=path,
        header=header,
        frames=frames[1:] if header is not None else frames,
        size=len(content),
        whole=whole,
        torn=whole < len(content) and not has_frame(content, whole),
    )


def scan(folder: Path) -> Scan:
    """Read a log from its first record on and check each one against the one before it."""
    paths = segments_of(folder)
    chain, leaves = Chain(), list[bytes]()
    name: str | None = None

    def found(fault: str | None = None, place: tuple[Path, int] | None = None, *, torn: bool = False) -> Scan:
        return Scan(
            chain=chain,
            name=name,
            leaves=tuple(leaves),
            segments=len(paths),
            fault=fault,
            place=place,
            torn=torn,
        )

    for path in paths:
        segment, last = read_segment(path), path is paths[-1]
        header = segment.header
        if header is None or header != chain.header(header.chain) or name not in (None, header.chain):
            torn = last and segment.whole == 0 and (segment.torn or not segment.size)
            what = "is torn" if torn else "does not go on where the one before it ended"
            fault = f"the header of {path.name} (before record {chain.count}) {what}"
            return found(fault, (path, 0), torn=torn)
        name = header.chain
        for frame in segment.frames:
            if not chain.follows(frame.payload):
                place = f"{path.name} at byte {frame.start}"
                fault = f"record {chain.count} ({place}) does not follow the one before"
                return found(fault, (path, frame.start))
            leaves.append(leaf_hash(frame.payload))
        if segment.whole < segment.size:
            torn = last and segment.torn
            what = f"is torn: {segment.size - segment.whole} bytes at the end of" if torn else "is damaged:"
            fault = f"record {chain.count} {what} {path.name}, from byte {segment.whole} on"
            return found(fault, (path, segment.whole), torn=torn)
    return found()


def records_of(folder: Path) -> Iterator[bytes]:
    """Yield the payloads of all whole records, unchecked; for reading a log that `scan` found sound."""
    for path in segments_of(folder):
        for frame in read_segment(path).frames:
            yield frame.payload
