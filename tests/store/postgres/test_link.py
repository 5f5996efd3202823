"""What TLS has decrypted no socket shows: it is taken in, however little of it libpq takes at once."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from psycopg import pq

from perdure.store.postgres.link import PostgresLink, Sent

RECORD, ROOM = 16 << 10, 8 << 10


class Result:
    status = pq.ExecStatus.PIPELINE_SYNC


class Libpq:
    """Reads from its socket a record at a time, and takes in half of one, as releases before 18 do."""

    ssl_in_use = True
    status = pq.ConnStatus.OK

    def __init__(self, socket: socket.socket, whole: int) -> None:
        self.file, self.whole = socket, whole
        self.pending = self.taken = 0

    def consume_input(self) -> None:
        if not self.pending:
            try:
                self.pending = len(self.file.recv(RECORD, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return
        took = min(self.pending, ROOM)
        self.pending -= took
        self.taken += took

    def is_busy(self) -> bool:
        return self.taken < self.whole

    def get_result(self) -> Result:
        return Result()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def link_to(libpq: Libpq) -> PostgresLink:
    link: Any = PostgresLink.__new__(PostgresLink)
    link._pgconn, link.usable, link.socket, link._poll = libpq, True, libpq.file.fileno(), select.poll()
    link._poll.register(link.socket)
    return link  # type: ignore[no-any-return]


def sent(patience_s: float) -> Sent:
    return Sent(committing=False, lead=0, asked=None, deadline=monotonic() + patience_s)


@pytest.mark.parametrize("records", [1, 2, 5])
def test_no_part_of_an_answer_stays_behind(ends: tuple[socket.socket, socket.socket], records: int) -> None:
    ours, theirs = ends
    theirs.sendall(b"x" * RECORD * records)
    libpq = Libpq(ours, RECORD * records)
    assert link_to(libpq).advance(sent(60))


def test_a_waiting_thread_looks_for_what_came_between_two_looks(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = ends
    libpq = Libpq(ours, RECORD)
    libpq.pending = RECORD  # decrypted, and not seen
    link, waiting = link_to(libpq), sent(3600)
    link._wait(waiting)
    assert link.advance(waiting)
