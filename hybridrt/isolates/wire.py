"""The wire: packed objects through a stream socket.

A message is a header, the sizes of its buffers, the buffers, the pickle stream. Small ones are one
write and one read. Large pieces are written from where they lie and read into where they stay, so each is
copied once into the kernel and once out of it.

The header has the number of the call, and the answer repeats it. Code in an isolate may write to a descriptor
that is not its own; without a number the answers after that would go to the wrong calls. The end that asks
refuses a message with another number, and the wire is of no more use: what comes next cannot be told.

Shared memory was measured beside it (`python -m benchmarks carrying`). A segment made for one call is two to
four times slower, because its pages have to be made first. One that is kept gains little that lasts with the
size, except for who reads it in place, and then what a function keeps of its arguments changes under it at
the next call.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from mmap import mmap
from typing import Any

from hybridrt.isolates.packing import SMALL, Packed, unpack

if sys.platform != "win32":
    from mmap import MAP_ANONYMOUS, MAP_PRIVATE

__all__ = ["Message", "OutOfStepError", "Wire", "WireClosedError"]

_HEADER = struct.Struct("<IBQQQI")
_NUMBERS = 1 << 32
"""Numbers that calls can have; the first is drawn, so that no text and no zeros look like it."""
_SEND_BUFFER = 1 << 20
"""Bytes to ask the kernel for, so that a large message takes fewer wake-ups of both ends."""
_MAPPED = 1 << 25
"""Bytes from which a buffer has new pages of its own, as glibc gives it, too. Smaller ones are slower so."""
_NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
"""Writing to an end that is gone fails, even in a program that lets the signal for it end itself."""


class WireClosedError(Exception):
    """The other end is gone."""


class OutOfStepError(WireClosedError):
    """What has come is no answer to the last message; all that comes after it is in doubt."""


@dataclass(slots=True)
class Message:
    """What arrived.

    Attributes:
        status: What it says; see `child`.
        wall_ns: Time the function took.
        cpu_ns: CPU time it took.
        value: The object.
        error: Why the object could not be put together; it then is None.
    """

    status: int
    wall_ns: int
    cpu_ns: int
    value: Any = None
    error: BaseException | None = None


class Wire:
    """One end. One thread at a time sends or receives.

    Attributes:
        number: Of the call that was sent or has come last.

    Args:
        end: The socket, which the wire owns from now on.
        asks: This end numbers its messages, and each has one answer, which has its number.
    """

    def __init__(self, end: socket.socket, *, asks: bool = False) -> None:
        self._socket = end
        self._asks = asks
        self.number = int.from_bytes(os.urandom(4), "little")
        self._ahead = memoryview(bytearray(SMALL))
        """What has been read ahead lies between the two offsets."""
        self._from = self._to = 0
        if hasattr(socket, "SO_NOSIGPIPE"):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)
        with suppress(OSError):  # it is a wish
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)

    def send(self, packed: Packed, status: int = 0, wall_ns: int = 0, cpu_ns: int = 0) -> None:
        """Send one message.

        Raises:
            WireClosedError: Not all of it could be sent.
        """
        sizes = [len(buffer) for buffer in packed.buffers]
        # Large pieces lie where they were, and may have another size by now; the message must still be one.
        stream = packed.pickle_size
        head = _HEADER.pack(self._next(), status, wall_ns, cpu_ns, stream, len(sizes))
        if sizes:
            head += struct.pack(f"<{len(sizes)}Q", *sizes)
        parts = [head, *packed.buffers, *packed.pieces]
        if stream + sum(sizes) <= SMALL:
            parts = [b"".join(parts)]
        try:
            for part in parts:
                self._socket.sendall(part, _NO_SIGNAL)
        except OSError as error:
            raise WireClosedError from error

    def receive(self) -> Message:
        """Wait for one message; the next one can be received even if the object cannot be put together.

        Raises:
            WireClosedError: The other end closed before all of it was there.
            OutOfStepError: It is not the answer.
        """
        return self._receive_small() or self._receive_in_pieces()

    def _receive_in_pieces(self) -> Message:
        number, status, wall_ns, cpu_ns, stream, count = _HEADER.unpack(self._exactly(_HEADER.size))
        self._check(number)
        sizes = struct.unpack(f"<{count}Q", self._exactly(8 * count)) if count else ()
        buffers = [self._buffer(size) for size in sizes]
        message = Message(status, wall_ns, cpu_ns)
        source = _Stream(self, stream) if stream > SMALL else self._exactly(stream)
        try:
            message.value = unpack(source, buffers)
        except WireClosedError:
            raise
        except BaseException as error:  # as the panic of an extension written in Rust
            message.error = error
        if isinstance(source, _Stream):
            source.skip()
        return message

    def _receive_small(self) -> Message | None:
        """Wait for something and read it. Return None, with nothing lost, if it is no small message, or not
        all of one.
        """
        if self._from == self._to:
            self._from, self._to = 0, self._read(self._ahead)
        begin = self._from + _HEADER.size
        if begin > self._to:
            return None
        number, status, wall_ns, cpu_ns, stream, buffers = _HEADER.unpack_from(self._ahead, self._from)
        if number != self.number:
            self._check(number)
        end = begin + stream
        if buffers or stream > SMALL or end > self._to:
            return None
        message = Message(status, wall_ns, cpu_ns)
        try:
            message.value = pickle.loads(self._ahead[begin:end])
        except BaseException as error:
            message.error = error
        self._from = end
        return message

    def _next(self) -> int:
        """Return the number of the message to be sent: a new one, or that of the call to be answered."""
        if self._asks:
            self.number = (self.number + 1) % _NUMBERS
        return self.number

    def _check(self, number: int) -> None:
        """Take the number of a call, or refuse a message that is not its answer."""
        if self._asks and number != self.number:
            raise OutOfStepError
        self.number = number

    def end_sending(self) -> None:
        """Tell the other end that nothing more comes."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """End it both ways; wakes up who waits at either end. From any thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def fill(self, view: memoryview) -> None:
        """Fill the view with what comes next."""
        ahead = min(len(view), self._to - self._from)
        if ahead:
            view[:ahead] = self._ahead[self._from : self._from + ahead]
            self._from += ahead
            view = view[ahead:]
        while len(view) >= SMALL:
            view = view[self._read(view) :]
        while view:
            self._to = self._read(self._ahead)
            ahead = self._from = min(len(view), self._to)
            view[:ahead] = self._ahead[:ahead]
            view = view[ahead:]

    def take(self, size: int) -> bytes:
        """Return the next bytes, as many as come at once; where memory is lacking for that none is lost."""
        if self._from < self._to:
            ahead = bytes(self._ahead[self._from : min(self._from + size, self._to)])
            self._from += len(ahead)
            return ahead
        try:
            taken = self._socket.recv(size, socket.MSG_WAITALL)
        except OSError as error:
            raise WireClosedError from error
        if not taken:
            raise WireClosedError
        return taken

    def _read(self, view: memoryview) -> int:
        try:
            got = self._socket.recv_into(view)
        except OSError as error:
            raise WireClosedError from error
        if not got:
            raise WireClosedError
        return got

    def _buffer(self, size: int) -> bytearray | mmap:
        if size < _MAPPED:
            return self._exactly(size)
        data = _map(size)
        self.fill(memoryview(data))
        return data

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        self.fill(memoryview(data))
        return data


def _map(size: int) -> mmap:
    """Return memory that the kernel clears while it is read into; a `bytearray` clears it with the GIL."""
    try:
        if sys.platform == "win32":
            return mmap(-1, size)
        return mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS)  # else forked children would share it
    except OSError as error:
        raise MemoryError from error


class _Stream:
    """The pickle stream of one message, as the file that it is read from."""

    def __init__(self, wire: Wire, left: int) -> None:
        self._wire = wire
        self._left = left

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        if len(view) > self._left:
            raise EOFError("the pickle stream ends too early")
        self._left -= len(view)
        self._wire.fill(view)
        return len(view)

    def read(self, size: int) -> bytes:
        if size > self._left:
            raise EOFError("the pickle stream ends too early")
        pieces = list[bytes]()
        while size:
            piece = self._wire.take(size)
            size -= len(piece)
            self._left -= len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readline(self) -> bytes:
        raise ValueError("only old pickle protocols have lines")

    def skip(self) -> None:
        """Read what is left and forget it."""
        while self._left:
            self.read(min(self._left, SMALL))
