"""Writing files of 64 KiB, with and without waiting for the disk to have them."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.children.workloads import Phases

__all__ = ["disk"]

_SIZE = 64 << 10


@contextmanager
def disk(sync: bool) -> Iterator[Phases]:
    """Write one file per thread anew with every call, so that the folder does not grow."""
    block = os.urandom(_SIZE)
    with tempfile.TemporaryDirectory(prefix="benchmark-disk-") as folder:

        def call() -> None:
            with open(Path(folder, str(threading.get_ident())), "wb") as file:
                file.write(block)
                file.flush()
                if sync:
                    os.fsync(file.fileno())

        yield (call,)
