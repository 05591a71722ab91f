"""Packing: objects into bytes and back, large ones without a second copy.

Protocol 5 of pickle. Numpy arrays and the like give their memory away as buffers of their own. The
pickler itself hands large `bytes` and `bytearray` objects to its file as they are, so the stream is kept
as the list of what was written. A `memoryview`, which pickle refuses, crosses as one over there.
"""

from __future__ import annotations

import copyreg
import pickle
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

__all__ = ["SMALL", "Packed", "Reader", "pack", "unpack"]

Piece: TypeAlias = bytes | bytearray | memoryview
SMALL = 1 << 16
"""Bytes up to which a copy is cheaper than a system call more; pickle's own frames have this size."""
_IN_BAND = 1 << 12
"""Bytes up to which a buffer goes with the stream."""


class Reader(Protocol):
    """What pickle needs of a file."""

    def read(self, size: int, /) -> bytes:
        """Return the next `size` bytes."""

    def readline(self) -> bytes:
        """Return the next line."""

    def readinto(self, target: Any, /) -> int:
        """Fill `target`, and return its size."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An object on its way.

    Attributes:
        pieces: The pickle stream.
        buffers: The memory that goes beside it.
    """

    pieces: Sequence[Piece]
    buffers: Sequence[memoryview] = ()

    @property
    def pickle_size(self) -> int:
        """Bytes of the stream."""
        return sum(map(len, self.pieces))


class _Pieces:
    """A file that keeps what is written to it."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def write(self, piece: Any) -> None:
        # A view may be of memory that is gone when the pickler goes on.
        self.pieces.append(bytes(piece) if type(piece) is memoryview else piece)


def _rebuild_view(buffer: Any, form: Any, shape: tuple[int, ...]) -> memoryview:
    flat = memoryview(buffer).cast("B")
    return flat.cast(form) if len(shape) == 1 else flat.cast(form, shape)  # a shape may have no 0 in it


def _reduce_view(view: memoryview) -> tuple[Any, ...]:
    if not (view.c_contiguous and (view.ndim == 1 or (view.ndim and view.nbytes))):
        raise pickle.PicklingError(
            "a memoryview must be contiguous, and not empty unless it has one dimension, to be carried"
        )
    return _rebuild_view, (pickle.PickleBuffer(view), view.format, view.shape)


_REDUCERS: ChainMap[Any, Any] = ChainMap({memoryview: _reduce_view}, copyreg.dispatch_table)


def pack(value: Any) -> Packed:
    """Take an object apart.

    The object must not change until it has been sent.

    Raises:
        Exception: Whatever pickling it raises.
    """
    file = _Pieces()
    buffers: list[memoryview] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _IN_BAND:
            return True
        buffers.append(view)
        return False

    pickler = pickle.Pickler(file, 5, buffer_callback=aside)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
    return Packed(file.pieces, buffers)


def unpack(stream: Piece | Reader, buffers: Sequence[Any] = ()) -> Any:
    """Put an object together again.

    Raises:
        Exception: Whatever unpickling it raises.
    """
    if isinstance(stream, (bytes, bytearray, memoryview)):
        return pickle.loads(stream, buffers=buffers)
    return pickle.Unpickler(stream, buffers=buffers).load()
