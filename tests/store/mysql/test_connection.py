"""Sending and receiving without a wait, whatever the driver has last told the socket."""

from __future__ import annotations

import socket
import time

import pytest

from perdure.store.mysql.connection import Connection


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_there_is_no_wait_on_a_socket_that_the_driver_has_told_to_wait(timeout: float | None) -> None:
    """Some releases of the driver say so at every call, and keep no note of it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = Connection.__new__(Connection)
        connection._sock, connection._current_timeout = ours, 0
        ours.settimeout(timeout)
        began = time.monotonic()
        assert connection.receive_some() == b""
        assert time.monotonic() - began < 4
        while connection.send_some(memoryview(b"x" * 65536)):
            pass
        theirs.sendall(b"answer")
        ours.settimeout(timeout)
        assert connection.receive_some() == b"answer"
        connection._sock = None
