"""The driver's connection, which can also send and receive without a wait."""

from __future__ import annotations

import ssl
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar

import pymysql

from perdure.store.mysql.result import Result
from perdure.store.server.dialect import Result as Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_AT_ONCE = 1 << 18


if TYPE_CHECKING:
    _Connection = pymysql.connections.Connection[Any]
else:
    _Connection = pymysql.connections.Connection


class Connection(_Connection):
    """PyMySQL's, with a deadline that can be changed, and one context for all that check no certificate."""

    server_status: int
    """Of the last answer."""
    # What the driver does not say of itself.
    _sock: Any
    _rfile: Any
    _result: Any
    _current_timeout: Any
    _next_seq_id: int
    _force_close: Any
    _unchecked: ClassVar[ssl.SSLContext | None] = None

    def _create_ssl_ctx(self, sslp: Mapping[str, Any] | ssl.SSLContext) -> ssl.SSLContext:
        """Make the context of TLS.

        Where nothing is asked for, nothing is checked. The driver reads the system's certificates all the same, and
        for every connection anew, which takes longer than all else that a connection needs.
        """
        if sslp or Connection._unchecked is None:
            made: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]  # not in the published types
            if sslp:
                return made
            Connection._unchecked = made
        return Connection._unchecked

    def limit(self, seconds: float) -> None:
        """Give up a call when nothing comes, or can be sent, for so long."""
        self._read_timeout = self._write_timeout = seconds

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        return int(self._sock.fileno())

    def send_some(self, data: memoryview) -> int:
        """Send what can be sent without a wait, and return how many bytes that was."""
        self._hurry()
        with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return int(self._sock.send(data))
        return 0

    def receive_some(self) -> bytes:
        """Return what has come, without a wait; nothing if that is nothing.

        Raises:
            ConnectionError: nothing will come any more.
        """
        self._hurry()
        try:
            found: bytes = self._sock.recv(_MOST_AT_ONCE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        if not found:
            message = "the server has closed the connection"
            raise ConnectionResetError(message)
        return found

    def _hurry(self) -> None:
        if self._sock is None:
            message = "the connection was given up"
            raise ConnectionResetError(message)
        if self._sock.gettimeout() != 0:
            self._sock.settimeout(0)
            self._current_timeout = 0  # else the driver believes in the one it has set

    def results(self, data: bytes, number: int) -> Iterator[Answer]:
        """Read the answers to a packet of statements, which have all come; the first one's frame has this number.

        Raises:
            Error: what the server says instead of an answer.
        """
        reader, self._rfile = self._rfile, BytesIO(data)
        self._next_seq_id = number % 256
        try:
            more = True
            while more:
                self._read_query_result()
                yield Answer(list(self._result.rows or ()), self._result.affected_rows or 0)
                more = bool(self._result.has_next)
        finally:
            self._rfile = reader
            if self._sock is None:  # given up meanwhile
                self._force_close()

    def _read_query_result(self, unbuffered: bool = False) -> int:  # noqa: FBT001, FBT002, ARG002 - the driver's own
        self._result = None
        found = Result(self)
        found.read()
        self._result = found
        if found.server_status is not None:
            self.server_status = found.server_status
        return found.affected_rows or 0
