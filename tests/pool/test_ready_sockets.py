"""A read of a socket that has data is no wait: the call keeps its permit."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest

from hybridrt.measure import kernel
from hybridrt.measure.kernel import is_readable
from hybridrt.pool import site_events
from hybridrt.pool.permits import NONE, SHORT
from hybridrt.pool.state import Pool
from hybridrt.pool.worker import current_worker
from hybridrt.values import Kind

from .racing import known, pool_with_site, submit
from .support import DEADLINE, until

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no sys.monitoring")


def read_at(here: socket.socket) -> bytes:
    return here.recv(1)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


@pytest.fixture
def pool() -> Iterator[Pool]:
    with pool_with_site(read_at) as pool:
        yield pool


def test_a_call_that_reads_what_is_there_keeps_its_permit(
    pool: Pool, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    there.send(b"abc")

    def reads() -> tuple[bytes, int, int]:
        worker = current_worker()
        assert worker is not None
        moves = pool.budget.permits.moves
        read = read_at(here) + read_at(here) + read_at(here)
        return read, worker.permit, pool.budget.permits.moves - moves

    known(pool, reads, Kind.SHORT)
    assert submit(pool, reads).result(DEADLINE) == (b"abc", SHORT, 0)
    assert [site.quick for site in pool.budget.phases.statistics().sites] == [0]


def test_a_call_that_has_to_wait_gives_it_back_and_has_it_again(
    pool: Pool, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    permits = pool.budget.permits

    def reads() -> tuple[bytes, int]:
        return read_at(here), permits.held[SHORT]

    known(pool, reads, Kind.SHORT)
    call = submit(pool, reads)
    until(lambda: pool.busy and permits.held[SHORT] == 0, "it waits")
    there.send(b"a")
    assert call.result(DEADLINE) == (b"a", 1)


def test_a_call_without_a_permit_asks_for_one_although_it_need_not_wait(
    pool: Pool, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    there.send(b"a")

    def reads() -> tuple[int, int]:
        worker = current_worker()
        assert worker is not None
        before = worker.permit
        read_at(here)
        return before, worker.permit

    known(pool, reads, Kind.WAITING)
    pool.profiles.of(reads).gated = True
    assert submit(pool, reads).result(DEADLINE) == (NONE, SHORT)


def test_a_read_of_a_closed_socket_fails_as_it_would(
    pool: Pool, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, _ = pair
    here.close()
    known(pool, read_at, Kind.SHORT)
    with pytest.raises(OSError, match="Bad file descriptor"):
        submit(pool, read_at, here).result(DEADLINE)


def test_what_a_subclass_says_of_its_number_is_not_asked(pool: Pool) -> None:
    class Odd(socket.socket):
        def fileno(self) -> int:
            raise ValueError("not now")

    here, there = socket.socketpair()
    with Odd(fileno=here.detach()) as odd, there:
        there.send(b"a")
        known(pool, read_at, Kind.SHORT)
        assert submit(pool, read_at, odd).result(DEADLINE) == b"a"


def test_where_memory_is_lacking_the_permit_is_given_back_as_before_a_wait(
    pool: Pool, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(_: int) -> bool:
        raise MemoryError

    here, there = pair
    there.send(b"a")
    monkeypatch.setattr(site_events, "is_readable", lacking)
    known(pool, read_at, Kind.SHORT)
    assert submit(pool, read_at, here).result(DEADLINE) == b"a"
    assert [site.quick for site in pool.budget.phases.statistics().sites] == [1]


def test_a_socket_is_readable_if_it_has_data_or_the_other_end_is_closed(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = pair
    assert not is_readable(here.fileno())
    there.send(b"a")
    assert is_readable(here.fileno())
    here.recv(1)
    assert not is_readable(here.fileno())
    there.close()
    assert is_readable(here.fileno())
    assert not is_readable(-1)
    monkeypatch.setattr(kernel, "KEEPS_GIL", False)
    assert not is_readable(here.fileno())
