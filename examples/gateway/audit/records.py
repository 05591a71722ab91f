"""Records: each one names the hash of the one before it, so that none can be changed, left out or moved.

Pure. A segment begins with a header record: which chain, the number of its first record, the hash of the
last record of the segment before it, and the peaks of all records so far (see `mountains`), so that
writing goes on without reading older segments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .mountains import Mountains, leaf_hash

__all__ = [
    "BODY_MAX",
    "ORIGIN",
    "Chain",
    "Header",
    "Record",
    "decode_header",
    "decode_record",
    "encode_body",
    "encode_header",
]

ORIGIN = bytes(32)
"""The hash that the first record of a chain names as the one before it."""
BODY_MAX = 1 << 20
"""Bytes of JSON of one record at most."""
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """How a segment begins.

    Attributes:
        chain: Name of the chain.
        first: Number of the segment's first record.
        previous: Hash of the record before that one.
        peaks: Peaks of all records before it.
    """

    chain: str
    first: int
    previous: bytes
    peaks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record.

    Attributes:
        index: Its number, from 0.
        previous: Hash of the record before it.
        body: What was recorded.
    """

    index: int
    previous: bytes
    body: Mapping[str, Any]


class Chain:
    """The end of a chain: number of records, hash of the last one, peaks of all.

    Args:
        count: Number of records.
        last: Hash of the last one.
        peaks: Peaks of all of them.
    """

    __slots__ = ("last", "mountains")

    def __init__(self, count: int = 0, last: bytes = ORIGIN, peaks: tuple[bytes, ...] = ()) -> None:
        self.last = last
        self.mountains = Mountains(count, peaks)

    @property
    def count(self) -> int:
        """Number of records."""
        return self.mountains.count

    def encode(self, body: bytes) -> bytes:
        """Return the payload of the next record, whose body `encode_body` made, and take it in."""
        payload = b'{"body":%b,"index":%d,"previous":"%b"}' % (
            body,
            self.count,
            self.last.hex().encode(),
        )
        self._take(payload)
        return payload

    def follows(self, payload: bytes) -> bool:
        """Return True if a payload is the next record, and take it in; change nothing otherwise."""
        record = decode_record(payload)
        if record is None or record.index != self.count or record.previous != self.last:
            return False
        self._take(payload)
        return True

    def header(self, name: str) -> Header:
        """Return the header of a segment that goes on here."""
        return Header(chain=name, first=self.count, previous=self.last, peaks=self.mountains.peaks)

    def _take(self, payload: bytes) -> None:
        self.last = leaf_hash(payload)
        self.mountains.add(self.last)


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Return what is to be recorded as JSON.

    Raises:
        TypeError: It is no mapping, or holds what JSON cannot say.
        ValueError: It is longer than `BODY_MAX` bytes, or holds infinity or NaN.
    """
    if not isinstance(body, Mapping):
        raise TypeError(f"an audit record is a mapping with string keys, got {type(body).__name__}")
    packed = _pack(body)
    if len(packed) > BODY_MAX:
        raise ValueError(f"an audit record has at most {BODY_MAX} bytes of JSON, got {len(packed)}")
    return packed


def encode_header(header: Header) -> bytes:
    """Return a header as a payload."""
    peaks = [peak.hex() for peak in header.peaks]
    fields = {"chain": header.chain, "first": header.first, "previous": header.previous.hex(), "peaks": peaks}
    return _pack({"segment": _VERSION, **fields})


def decode_header(payload: bytes) -> Header | None:
    """Return the header that a payload carries; None if it carries none."""
    try:
        found = json.loads(payload)
        if found["segment"] != _VERSION:
            return None
        peaks = tuple(bytes.fromhex(peak) for peak in found["peaks"])
        return Header(
            chain=str(found["chain"]),
            first=int(found["first"]),
            previous=bytes.fromhex(found["previous"]),
            peaks=peaks,
        )
    except (ValueError, KeyError, TypeError):
        return None


def decode_record(payload: bytes) -> Record | None:
    """Return the record that a payload carries; None if it carries none."""
    try:
        found = json.loads(payload)
        return Record(
            index=int(found["index"]), previous=bytes.fromhex(found["previous"]), body=found["body"]
        )
    except (ValueError, KeyError, TypeError):
        return None


def _pack(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
