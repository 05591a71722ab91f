"""Packing: objects into bytes and back, large ones without a second copy.

Protocol 5 of pickle. Numpy arrays and the like give their memory away as buffers of their own. The
pickler itself hands large `bytes` and `bytearray` objects to its file as they are, so the stream is kept
as the list of what was written. A `memoryview`, which pickle refuses, crosses as one over there.
"""

from __future__ import annotations

import copyreg
import pickle
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

__all__ = [
    "FIXED", "LIGHT", "SMALL", "Packed", "Reader", "is_light", "pack", "room_beside", "unpack", "weigh_call",
]  # fmt: skip

Piece: TypeAlias = bytes | bytearray | memoryview
SMALL = 1 << 16
"""Bytes up to which a copy is cheaper than a system call more; pickle's own frames have this size."""
LIGHT = 1 << 12
"""Bytes that are packed and unpacked in some microseconds, and sent at one go."""
_IN_BAND = 1 << 12
"""Bytes up to which a buffer goes with the stream."""
_SCALARS = frozenset({bool, float, complex, type(None)})
_TEXTS = frozenset({str, bytes, bytearray})
FIXED = _SCALARS | {int, str, bytes}
"""Light types whose objects nobody can change: packed together, they still share nothing that matters."""
_LISTS = frozenset({list, tuple, set, frozenset})
_EACH = 64
"""Bytes that each object counts for at least, so that there are few."""


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

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.pickle_size + sum(map(len, self.buffers))


class _Pieces:
    """A file that keeps what is written to it."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def write(self, piece: Any) -> None:
        # A view may be of memory that is gone when the pickler goes on.
        self.pieces.append(bytes(piece) if type(piece) is memoryview else piece)


def _rebuild_view(buffer: Any, form: str, shape: tuple[int, ...]) -> memoryview:
    flat = memoryview(buffer).cast("B")
    return flat if form == "B" and len(shape) == 1 else flat.cast(form, shape)  # type: ignore[call-overload]


def _reduce_view(view: memoryview) -> tuple[Any, ...]:
    if not (view.c_contiguous and view.nbytes and view.ndim):
        raise pickle.PicklingError("a memoryview must be contiguous and not empty to be carried")
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


def is_light(values: Collection[Any]) -> bool:
    """Tell whether pickling the values takes microseconds and runs nobody's code.

    True of some dozens of numbers and short texts, in lists and dictionaries or not, and of nothing else.
    """
    return room_beside(values, LIGHT) >= 0


def weigh_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Return about how many bytes the arguments of a call take; more than `LIGHT` if they are not light."""
    left = room_beside(args, LIGHT)
    return LIGHT - (room_beside((kwargs,), left) if kwargs else left)


def room_beside(values: Collection[Any], left: int) -> int:
    """Return how many of the bytes are left; below zero, if the values are too many or not of our kinds."""
    left -= _EACH * len(values)
    if left < 0:
        return left
    for value in tuple(values):  # whoever changes them meanwhile is in error, and hears of it elsewhere
        kind = type(value)
        if kind is int:
            left -= value.bit_length() >> 3
        elif kind in _TEXTS:
            left -= len(value)
        elif kind in _LISTS:
            left = room_beside(value, left)
        elif kind is dict:
            left = room_beside(value.values(), room_beside(value, left))
        elif kind not in _SCALARS:
            return -1
        if left < 0:
            break
    return left


def unpack(stream: Piece | Reader, buffers: Sequence[Any] = ()) -> Any:
    """Put an object together again.

    Raises:
        Exception: Whatever unpickling it raises.
    """
    if isinstance(stream, (bytes, bytearray, memoryview)):
        return pickle.loads(stream, buffers=buffers)
    return pickle.Unpickler(stream, buffers=buffers).load()
