"""The kernel's small files, read with the GIL kept."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hybridrt.measure import kernel

DEADLINE = 30.0
READERS = [kernel._read_without_gil] + ([kernel._read_with_gil] if kernel.KEEPS_GIL else [])
every_reader = pytest.mark.parametrize("read", READERS)
proc_only = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="there is no /proc here")
gil_only = pytest.mark.skipif(
    not kernel.KEEPS_GIL or not getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="there is no GIL to keep, or no way to keep it",
)

Reader = Callable[[str], bytes]


@every_reader
def test_a_file_is_read_up_to_512_bytes(read: Reader, tmp_path: Path) -> None:
    file = tmp_path / "größe"
    file.write_bytes(b"0123456789" * 100)
    assert read(str(file)) == (b"0123456789" * 100)[:512]
    file.write_bytes(b"1 2\n\0 3")
    assert read(str(file)) == b"1 2\n\0 3"


@every_reader
def test_more_is_read_where_more_is_asked_for(read: Callable[[str, int], bytes], tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_bytes(b"0123456789" * 1000)
    assert read(str(file), 4096) == (b"0123456789" * 1000)[:4096]


@every_reader
def test_what_cannot_be_read_is_nothing(read: Reader, tmp_path: Path) -> None:
    assert read(str(tmp_path / "missing")) == b""
    assert read(str(tmp_path)) == b""  # a folder can be opened and not be read


@proc_only
@every_reader
def test_no_file_stays_open(read: Reader, tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for path in ("/proc/self/status", str(tmp_path), "/proc/self/missing"):
        read(path)
    assert os.listdir("/proc/self/fd") == before


def waits_for_the_gil(read: Reader, seconds: float) -> bool:
    """Read for some time while a thread wants the GIL that never takes it; tell whether it was given away."""
    gate, ran, interval = threading.Lock(), threading.Event(), sys.getswitchinterval()

    def want() -> None:
        with gate:
            ran.set()

    gate.acquire()
    thread = threading.Thread(target=want)
    sys.setswitchinterval(1000.0)  # before it waits for the GIL: it takes what was set then
    try:
        thread.start()
        gate.release()
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not ran.is_set():
            read("/proc/self/stat")
        return not ran.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()


@proc_only
@gil_only
def test_reading_keeps_the_gil() -> None:
    assert waits_for_the_gil(kernel._read_with_gil, 0.05)
    assert not waits_for_the_gil(kernel._read_without_gil, DEADLINE)
