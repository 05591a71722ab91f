"""Objects through a wire, large and small, whole and broken."""

from __future__ import annotations

import errno
import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from mmap import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridrt.isolates import wire
from hybridrt.isolates.packing import SMALL, pack, unpack
from hybridrt.isolates.wire import Wire, WireClosedError

from .far import Brittle

values = st.recursive(
    st.none() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@pytest.fixture
def wires() -> Iterator[tuple[Wire, Wire]]:
    here, there = map(Wire, socket.socketpair())
    yield here, there
    here.close()
    there.close()


def through(wires: tuple[Wire, Wire], value: Any) -> Any:
    """Send a value from one end, receive it at the other."""
    with ThreadPoolExecutor(1) as sender:
        sent = sender.submit(wires[0].send, pack(value), 3, 4, 5)
        message = wires[1].receive()
        sent.result()
    assert message.error is None
    assert (message.status, message.wall_ns, message.cpu_ns) == (3, 4, 5)
    return message.value


@given(values)
def test_what_is_packed_comes_out_again(value: Any) -> None:
    packed = pack(value)
    assert unpack(b"".join(packed.pieces), packed.buffers) == value


@pytest.mark.parametrize("size", [0, 1, SMALL - 1, SMALL, SMALL + 1, 3_000_000])
@pytest.mark.parametrize(
    "kind",
    [bytes, bytearray, lambda n: "x" * n, lambda n: [1.5] * (n // 9)],
    ids=["bytes", "bytearray", "text", "list"],
)
def test_values_of_every_size_cross(wires: tuple[Wire, Wire], kind: Any, size: int) -> None:
    value = kind(size)
    arrived = through(wires, (value, "tail"))
    assert arrived == (value, "tail")
    assert type(arrived[0]) is type(value)


def test_messages_that_follow_each_other_do_not_mix(wires: tuple[Wire, Wire]) -> None:
    first, second = [bytes(SMALL), 1], [np.arange(SMALL), 2]
    with ThreadPoolExecutor(1) as sender:
        sender.submit(lambda: [wires[0].send(pack(value)) for value in (first, second, 3)])
        arrived = [wires[1].receive().value for _ in range(3)]
    assert arrived[0] == first
    assert (arrived[1][0] == second[0]).all()
    assert arrived[2] == 3


@pytest.mark.parametrize("value", [bytes(1 << 20), bytearray(1 << 20)], ids=["bytes", "bytearray"])
def test_large_byte_strings_are_not_copied_when_packed_wherever_they_lie(value: Any) -> None:
    assert any(piece is value for piece in pack({"deep": [value]}).pieces)


def test_arrays_give_their_memory_away_and_come_back_writable(wires: tuple[Wire, Wire]) -> None:
    array = np.arange(200_000.0).reshape(400, 500)
    packed = pack({"deep": [array]})
    assert np.shares_memory(np.frombuffer(packed.buffers[0]), array)
    assert packed.pickle_size < 1000
    arrived = through(wires, array)
    assert (arrived == array).all()
    arrived[0, 0] = 7.0


def test_the_memory_of_a_large_array_is_cleared_by_the_kernel_and_not_with_the_gil(
    wires: tuple[Wire, Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_MAPPED", 1 << 20)
    arrived = through(wires, memoryview(np.ones(200_000)))
    assert isinstance(arrived.obj, mmap)
    assert not arrived.readonly
    monkeypatch.setattr(wire, "mmap", _lack_memory)
    with pytest.raises(MemoryError):
        wires[0]._buffer(2_000_000)


def _lack_memory(*_: object) -> None:
    raise OSError(errno.ENOMEM, "out of memory")


def test_small_arrays_go_with_the_stream() -> None:
    assert not pack(np.arange(10)).buffers


@pytest.mark.parametrize(
    "view",
    [
        memoryview(b"abc"),
        memoryview(bytes(100_000)),
        memoryview(np.arange(60_000.0).reshape(200, 300)),
        memoryview(b""),
        memoryview(np.zeros(0)),
    ],
    ids=["small", "large", "two dimensions", "empty", "empty, of numbers"],
)
def test_a_view_arrives_as_a_view(wires: tuple[Wire, Wire], view: memoryview) -> None:
    arrived = through(wires, view)
    assert type(arrived) is memoryview
    assert (arrived, arrived.shape, arrived.format) == (view, view.shape, view.format)
    assert arrived.readonly == view.readonly


@pytest.mark.parametrize("tail", [b"", bytes(10 * SMALL)], ids=["small", "large"])
def test_an_object_that_cannot_be_rebuilt_leaves_the_wire_usable(
    wires: tuple[Wire, Wire], tail: bytes
) -> None:
    with ThreadPoolExecutor(1) as sender:
        sender.submit(lambda: [wires[0].send(pack(value)) for value in ([Brittle(), tail], "next")])
        broken, following = wires[1].receive(), wires[1].receive()
    assert isinstance(broken.error, LookupError)
    assert following.value == "next"


@pytest.mark.parametrize("at", [0, 1, 2])
def test_memory_lacking_in_the_middle_of_a_message_leaves_the_wire_usable(
    wires: tuple[Wire, Wire], monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    taken, take = itertools.count(), Wire.take

    def take_once(wire: Wire, size: int) -> bytes:
        if next(taken) == at:
            raise MemoryError
        return take(wire, size)

    monkeypatch.setattr(Wire, "take", take_once)
    with ThreadPoolExecutor(1) as sender:
        sent = sender.submit(lambda: [wires[0].send(pack(value)) for value in ("x" * 3_000_000, "next")])
        first = wires[1].receive()
        assert isinstance(first.error, MemoryError) or first.value == "x" * 3_000_000
        assert wires[1].receive().value == "next"
        sent.result()


def test_an_end_in_the_middle_of_a_message_is_told(wires: tuple[Wire, Wire]) -> None:
    data = b"".join(pack(1).pieces)
    wires[0]._socket.sendall(data)
    wires[0].end_sending()
    with pytest.raises(WireClosedError):
        wires[1].receive()


def test_cutting_wakes_up_who_waits(wires: tuple[Wire, Wire]) -> None:
    with ThreadPoolExecutor(1) as waiter:
        waiting = waiter.submit(wires[0].receive)
        wires[0].cut()
        with pytest.raises(WireClosedError):
            waiting.result()
    with pytest.raises(WireClosedError):
        wires[1].send(pack(bytes(1 << 22)))


def test_what_grows_after_it_was_packed_spoils_its_own_message_and_no_other(wires: tuple[Wire, Wire]) -> None:
    here, there = wires
    growing = bytearray(SMALL + 1)
    packed = pack(growing)
    growing.extend(b"more")
    here.send(packed)
    here.send(pack("next"))
    assert there.receive().error is not None
    assert there.receive().value == "next"


def test_writing_to_an_end_that_is_gone_does_not_end_a_program_that_lets_signals_do_so() -> None:
    program = """
import signal, socket
from hybridrt.isolates.packing import pack
from hybridrt.isolates.wire import Wire, WireClosedError
if hasattr(signal, "SIGPIPE"):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
here, there = socket.socketpair()
there.close()
try:
    Wire(here).send(pack(1))
except WireClosedError:
    print("closed")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "closed"), done.stderr
