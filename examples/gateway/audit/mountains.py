"""A Merkle mountain range: one short head stands for all records, and proves each of them.

Leaves are added at the right. Two neighbouring trees of the same height become one, so that n leaves are
as many perfect binary trees, the peaks, as n has bits that are set. The head is a hash over the number of
leaves and all peaks. Source: Peter Todd, "Merkle Mountain Ranges" (OpenTimestamps, 2012). We differ in
two ways: leaves, inner nodes and the head are hashed with a different first byte each (as in RFC 6962), so
that none can be passed off as another; and the peaks are hashed at once, not one after the other.

Pure: nothing here reads a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

__all__ = ["Mountains", "Proof", "head_of", "leaf_hash", "prove", "proves"]

_LEAF, _NODE, _HEAD = b"\x00", b"\x01", b"\x02"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What shows that a record is one of those that a head stands for.

    Attributes:
        index: Which record, from 0.
        count: How many records the head stands for.
        path: Hashes beside the way from the leaf up to its peak, lowest first.
        peaks: All peaks, the largest first.
    """

    index: int
    count: int
    path: tuple[bytes, ...]
    peaks: tuple[bytes, ...]


class Mountains:
    """The peaks of the leaves so far.

    Args:
        count: Number of leaves.
        peaks: Their peaks, the largest first.

    Raises:
        ValueError: That many leaves have another number of peaks.
    """

    __slots__ = ("_peaks", "count")

    def __init__(self, count: int = 0, peaks: Sequence[bytes] = ()) -> None:
        if count < 0 or len(peaks) != count.bit_count():
            raise ValueError(f"{count} leaves have {max(0, count).bit_count()} peaks, got {len(peaks)}")
        self.count = count
        self._peaks = list(peaks)

    @property
    def peaks(self) -> tuple[bytes, ...]:
        """The peaks, the largest first."""
        return tuple(self._peaks)

    @property
    def head(self) -> bytes:
        """The hash that stands for all leaves."""
        return head_of(self.count, self._peaks)

    def add(self, leaf: bytes) -> None:
        """Add a leaf at the right; merges as many peaks as the count has ones at its end."""
        node, merges = leaf, self.count
        while merges & 1:
            node = _node(self._peaks.pop(), node)
            merges >>= 1
        self._peaks.append(node)
        self.count += 1


def leaf_hash(payload: bytes) -> bytes:
    """Return the hash of a record's payload."""
    return sha256(_LEAF + payload).digest()


def head_of(count: int, peaks: Sequence[bytes]) -> bytes:
    """Return the head of that many leaves with those peaks."""
    return sha256(b"".join((_HEAD, count.to_bytes(8, "big"), *peaks))).digest()


def prove(leaves: Sequence[bytes], index: int) -> Proof:
    """Return the proof that a leaf is one of all; takes time in proportion to their number.

    Raises:
        ValueError: There is no such leaf.
    """
    count = len(leaves)
    if not 0 <= index < count:
        raise ValueError(f"the log has the records 0 to {count - 1}, got {index}")
    peaks: list[bytes] = []
    path: tuple[bytes, ...] = ()
    for start, size in _trees(count):
        levels = _levels(leaves[start : start + size])
        peaks.append(levels[-1][0])
        if start <= index < start + size:
            path = _path(levels, index - start)
    return Proof(index=index, count=count, path=path, peaks=tuple(peaks))


def proves(proof: Proof, leaf: bytes, head: bytes) -> bool:
    """Return True if a proof shows that a leaf is among those of a head; needs nothing else."""
    if not 0 <= proof.index < proof.count or len(proof.peaks) != proof.count.bit_count():
        return False
    if head_of(proof.count, proof.peaks) != head:
        return False
    trees = _trees(proof.count)
    which = next(number for number, (start, size) in enumerate(trees) if proof.index < start + size)
    start, size = trees[which]
    if len(proof.path) != size.bit_length() - 1:
        return False
    node, position = leaf, proof.index - start
    for sibling in proof.path:
        node = _node(sibling, node) if position & 1 else _node(node, sibling)
        position >>= 1
    return node == proof.peaks[which]


def _trees(count: int) -> list[tuple[int, int]]:
    """Return first leaf and number of leaves of each peak, the largest first."""
    trees, start = [], 0
    for bit in reversed(range(count.bit_length())):
        if count >> bit & 1:
            trees.append((start, 1 << bit))
            start += 1 << bit
    return trees


def _levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([_node(below[i], below[i + 1]) for i in range(0, len(below), 2)])
    return levels


def _path(levels: list[list[bytes]], position: int) -> tuple[bytes, ...]:
    path = []
    for level in levels[:-1]:
        path.append(level[position ^ 1])
        position >>= 1
    return tuple(path)


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(_NODE + left + right).digest()
