"""Sending and receiving without a wait, whatever the driver has last told the socket."""

from __future__ import annotations

import select
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure.store.mysql.connection import Connection
from perdure.store.mysql.link import MysqlLink, Sent
from tests.servers.certificate import Certificate


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


def test_what_tls_has_decrypted_is_taken_in_though_no_socket_shows_it(certificate: Certificate, tmp_path: Path) -> None:
    """An answer of a thousand frames in one record, as something between us and the server may send it."""
    (tmp_path / "both.pem").write_text(certificate.key + certificate.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    trusting = ssl.create_default_context(cadata=certificate.authority)
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as other:
        accepted = other.submit(context.wrap_socket, theirs, server_side=True)
        with trusting.wrap_socket(ours, server_hostname="localhost") as client, accepted.result() as server:
            connection: Any = Connection.__new__(Connection)
            connection._sock, connection._current_timeout = client, None
            link: Any = MysqlLink.__new__(MysqlLink)
            link._connection = connection
            sent: Any = Sent([], lead=0, wanted=1000, asked=0, commit_at=None)
            connection.results = lambda data, number: iter([len(data)])
            answer = b"".join(b"\x07\0\0\1\0\0\0" + bytes([10 if n < 999 else 2]) + b"\0\0\0" for n in range(1000))
            server.sendall(answer)
            assert select.select([client], [], [], 10)[0]
            assert link.advance(sent)
            assert sent.results == [len(answer)]
            connection._sock = None
