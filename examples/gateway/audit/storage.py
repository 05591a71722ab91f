"""Files: the few calls of the operating system that the writer needs, so that tests can let them fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Protocol

__all__ = ["Storage", "SystemStorage", "write_all"]


class Storage(Protocol):
    """What the writer asks of the operating system."""

    def create(self, path: Path) -> int:
        """Make a new file and return its descriptor, open for appending."""

    def open(self, path: Path) -> int:
        """Open a file for appending."""

    def write(self, descriptor: int, content: memoryview) -> int:
        """Write some of the content and return how much."""

    def sync(self, descriptor: int) -> None:
        """Return when what was written is on the disk."""

    def sync_folder(self, folder: Path) -> None:
        """Return when the names of the files of a folder are on the disk."""

    def close(self, descriptor: int) -> None:
        """Close a file."""


class SystemStorage:
    """The operating system itself."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def write(self, descriptor: int, content: memoryview) -> int:
        return os.write(descriptor, content)

    def sync(self, descriptor: int) -> None:
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync there does not reach the disk
        else:
            os.fsync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)


def write_all(storage: Storage, descriptor: int, content: bytes) -> None:
    """Write all of the content, however often the operating system takes only a part of it.

    Raises:
        OSError: It was refused; a part of it may be in the file.
    """
    left = memoryview(content)
    while left:
        written = storage.write(descriptor, left)
        if written <= 0:
            raise OSError(f"the operating system took {written} of {len(left)} bytes of an audit record")
        left = left[written:]
