"""Why a server refused a connection: its SQLSTATE, which libpq tells nowhere but in a trace of what it received."""

from __future__ import annotations

import os
import re
import select
from time import monotonic
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from collections.abc import Mapping

_STATE = re.compile(rb'\tErrorResponse\t.*? C "(\w{5})"')
_EVENTS: dict[int, int] = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}
_WRONG = frozenset({"28000", "28P01", "3D000"})
"""The role, the password, the database."""


def is_wrong(parameters: Mapping[str, str], deadline_s: float) -> bool:
    """Whether a connection is refused because of what the URL says; False if that cannot be told.

    Of several hosts one may be another server for the time being, so nothing is held against their URL.
    """
    if not hasattr(os, "memfd_create") or "," in parameters.get("host", ""):
        return False
    pgconn = pq.PGconn.connect_start(make_conninfo(**parameters).encode())
    with os.fdopen(os.memfd_create("perdure"), "rb") as trace:  # passwords pass through it: never a file
        try:
            pgconn.trace(trace.fileno())
            _connect(pgconn, monotonic() + deadline_s)
            pgconn.untrace()
            if pgconn.needs_password:
                return True
        except psycopg.Error:
            return False
        finally:
            pgconn.finish()
        trace.seek(0)
        states = _STATE.findall(trace.read())
    return bool(states) and states[-1].decode() in _WRONG


def _connect(pgconn: pq.abc.PGconn, deadline: float) -> None:
    status: int = pq.PollingStatus.WRITING
    while status in _EVENTS and pgconn.status != pq.ConnStatus.BAD:
        poll = select.poll()
        poll.register(pgconn.socket, _EVENTS[status])
        if not poll.poll(max(0.0, deadline - monotonic()) * 1000):
            return
        status = pgconn.connect_poll()
