"""Read the kernel's small files, and ask it what Python has no function for, without giving the GIL away.

Python gives it away for every system call on a file, and where a hundred threads want it, the reader,
and each thread that waits for it, has to get it back after each of the four that reading a file takes. What
the kernel makes up in memory is there at once.
"""

from __future__ import annotations

import os
import struct

try:  # not at the first question: a fork in the middle of an import leaves its lock to the child
    import ctypes

    _libc = ctypes.PyDLL(None)
    _open, _read, _close, _call, _poll = _libc.open, _libc.read, _libc.close, _libc.syscall, _libc.poll
except (ImportError, OSError, TypeError, AttributeError):  # in some sub-interpreters; on Windows
    KEEPS_GIL = False
else:
    KEEPS_GIL = True

__all__ = ["KEEPS_GIL", "is_readable", "read", "system_call"]

_SIZE = 512
"""Bytes of a file that are read, unless more are asked for."""
_POLL = struct.Struct("=ihh")
"""One descriptor for `poll`: its number, what is asked, what is found."""
_READABLE = 1
"""`POLLIN`; there are platforms without `select.poll`."""


def read(path: str, size: int = _SIZE) -> bytes:
    """Return how a file of the kernel begins, up to `size` bytes; nothing if it cannot be read.

    Only for files that never block, as those in /proc/self/task.
    """
    return _read_with_gil(path, size) if KEEPS_GIL else _read_without_gil(path, size)


def _read_with_gil(path: str, size: int = _SIZE) -> bytes:
    file = _open(os.fsencode(path), os.O_RDONLY | os.O_CLOEXEC)
    if file < 0:
        return b""
    try:
        buffer = ctypes.create_string_buffer(size)
        length = _read(file, buffer, size)
        return buffer.raw[: max(0, length)]
    finally:
        _close(file)


def _read_without_gil(path: str, size: int = _SIZE) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(size)
    except OSError:
        return b""


def system_call(number: int, *arguments: int | bytearray) -> bool:
    """Make a system call of Linux that does not block; return whether it succeeded.

    Args:
        number: Of the call, on this machine.
        arguments: Integers, and buffers, which the kernel may write to.
    """
    if not KEEPS_GIL:
        return False
    given = (
        ctypes.c_long(argument)
        if isinstance(argument, int)
        else ctypes.byref((ctypes.c_char * len(argument)).from_buffer(argument))
        for argument in arguments
    )
    return bool(_call(ctypes.c_long(number), *given) >= 0)


def is_readable(descriptor: int) -> bool:
    """Return True if a read of a socket or pipe returns at once; False also where that cannot be told."""
    if not KEEPS_GIL:
        return False
    asked = ctypes.create_string_buffer(_POLL.pack(descriptor, _READABLE, 0), _POLL.size)
    return bool(_poll(asked, 1, 0) > 0)
