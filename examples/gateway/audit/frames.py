"""Frames: how one record lies in a file.

A frame is `AUD1`, the length of its payload and a CRC-32 of length and payload (both 4 bytes, big endian),
then the payload. Pure: bytes in, frames out. The checksum finds accidents; what finds an intruder is the
chain in `records`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["HEAD_BYTES", "PAYLOAD_MAX", "Frame", "encode_frame", "has_frame", "read_frames"]

_MAGIC = b"AUD1"
_HEAD = struct.Struct(">4sII")
HEAD_BYTES = _HEAD.size
PAYLOAD_MAX = 16 << 20
"""Bytes of the longest payload; a length beyond it is damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame that was read.

    Attributes:
        start: Offset of its first byte.
        end: Offset of the byte after its last.
        payload: What it carries.
    """

    start: int
    end: int
    payload: bytes


def encode_frame(payload: bytes) -> bytes:
    """Return a payload as a frame.

    Raises:
        ValueError: The payload is longer than `PAYLOAD_MAX`.
    """
    if len(payload) > PAYLOAD_MAX:
        raise ValueError(f"a record has at most {PAYLOAD_MAX} bytes, got {len(payload)}; shorten it")
    return _HEAD.pack(_MAGIC, len(payload), _checksum(payload)) + payload


def read_frames(content: bytes, start: int = 0) -> Iterator[Frame]:
    """Yield the whole frames from an offset on; end at the first byte that begins none."""
    while (frame := _frame_at(content, start)) is not None:
        yield frame
        start = frame.end


def has_frame(content: bytes, start: int) -> bool:
    """Return True if a whole frame lies anywhere after an offset: what stands before it is no torn tail."""
    position = content.find(_MAGIC, start)
    while position >= 0:
        if _frame_at(content, position) is not None:
            return True
        position = content.find(_MAGIC, position + 1)
    return False


def _frame_at(content: bytes, start: int) -> Frame | None:
    if len(content) - start < HEAD_BYTES:
        return None
    magic, length, checksum = _HEAD.unpack_from(content, start)
    end = start + HEAD_BYTES + length
    if magic != _MAGIC or length > PAYLOAD_MAX or end > len(content):
        return None
    payload = content[start + HEAD_BYTES : end]
    return Frame(start=start, end=end, payload=payload) if _checksum(payload) == checksum else None


def _checksum(payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(struct.pack(">I", len(payload))))
