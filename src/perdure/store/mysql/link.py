"""One connection to MySQL or MariaDB.

INV-1  Statements go out together, in as few packets as the server takes; the first error ends them.
INV-2  After an error the transaction is only ever undone, as a whole: the server may have undone nothing, one statement
       or all of it. COMMIT counts only when it is answered, and the server says that no transaction is open.
INV-3  A call that takes longer than its deadline, or whose answer breaks off, ends the connection.
INV-4  While a transaction is open the server waits only seconds for its client, so that a frozen one holds no locks.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import pymysql
from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS
from pymysql.err import Error  # not by way of the package: Django puts copies there

from perdure.store.mysql import fault
from perdure.store.mysql.levels import levels
from perdure.store.mysql.result import Result
from perdure.store.mysql.statement import Statement
from perdure.store.server.dialect import LinkLost, Value
from perdure.store.server.dialect import Result as Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from ssl import SSLContext

    from perdure.store.server.clock import ServerClock

_LEVELS = "levels"
_SEPARATOR = b";\n"
_SPARE = 1024
"""Bytes of a packet that are not SQL."""


if TYPE_CHECKING:
    _Connection = pymysql.connections.Connection[Any]
else:
    _Connection = pymysql.connections.Connection


class Connection(_Connection):
    """PyMySQL's, with a deadline that can be changed, and one context for all that check no certificate."""

    server_status: int
    """Of the last answer."""
    _unchecked: ClassVar[SSLContext | None] = None

    def _create_ssl_ctx(self, sslp: Mapping[str, Any] | SSLContext) -> SSLContext:
        """Make the context of TLS.

        Where nothing is asked for, nothing is checked. The driver reads the system's certificates all the same, and
        for every connection anew, which takes longer than all else that a connection needs.
        """
        if sslp or Connection._unchecked is None:
            made: SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]  # not in the published types
            if sslp:
                return made
            Connection._unchecked = made
        return Connection._unchecked

    def limit(self, seconds: float) -> None:
        """Give up a call when nothing comes, or can be sent, for so long."""
        self._read_timeout = self._write_timeout = seconds

    def _read_query_result(self, unbuffered: bool = False) -> int:  # noqa: FBT001, FBT002, ARG002 - the driver's own
        self._result = None
        found = Result(self)
        found.read()
        self._result = found
        if found.server_status is not None:
            self.server_status = found.server_status
        return found.affected_rows or 0


class MysqlLink:
    """See the module."""

    def __init__(
        self,
        connection: Connection,
        statements: dict[str, Statement],
        clock: ServerClock,
        deadline_s: float,
        max_packet: int,
    ) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._statements = statements
        self._clock = clock
        self.deadline_s: float = deadline_s
        self.max_packet: int = max_packet - _SPARE
        """Bytes of SQL that the server takes at once."""
        self.usable: bool = True
        self._beginning = False
        self._open = False

    # ---- the protocol of the seam ----

    def execute(self, name: str, *values: Value) -> Answer:
        """Run a named statement."""
        if name == _LEVELS:
            return self.many((name, *values))[0]
        return self.run([self._statements[name].fill(values)])[0]

    def many(self, *calls: tuple[Any, ...]) -> list[Answer]:
        """Run named statements in one round trip, but for what has to be found out step by step."""
        if calls and calls[0][0] == _LEVELS:
            return levels(self.run, self._statements, [values for _, *values in calls])
        return self.run([self._statements[name].fill(values) for name, *values in calls])

    def query(self, sql: str, values: Sequence[Value]) -> Answer:
        """Run a statement put together from named parts."""
        return self.run([Statement(sql).fill(values)])[0]

    def script(self, sql: str) -> None:
        """Run several statements without values, each a transaction of its own."""
        self.run([sql.encode().strip().rstrip(b";")], several=True)

    def begin(self) -> None:
        """Begin a transaction, with the next statement."""
        self._beginning = True

    def commit(self) -> None:
        """End the transaction."""
        self.run([], committing=True)

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        self._beginning = False
        if self._open and self.usable:
            self.run([self._fixed("rollback"), self._fixed("long")])
            self._open = False

    def heard(self) -> int:
        """Return 0: the server has no hints."""
        return 0

    def close(self) -> None:
        """Let the connection go."""
        self.usable = False
        with suppress(Exception):
            self._connection.close()

    # ---- packets ----

    def _fixed(self, name: str) -> bytes:
        return self._statements[name].fill()

    def run(
        self, statements: Sequence[bytes], *, committing: bool = False, alone: bool = False, several: bool = False
    ) -> list[Answer]:
        """Run statements in as few round trips as possible and return what each gave.

        Args:
            statements: outside of a transaction each is one by itself.
            committing: end the transaction with them.
            alone: they are one statement, which is a transaction by itself, and whose end has to be known for sure.
            several: a statement may be several, with results that do not matter.

        Raises:
            LinkLost: the answer did not come, or not in time.
            Error: the first error; nothing after it was done.
            fault.TooLarge: a statement does not fit into a packet; nothing was sent.
        """
        opening = [self._fixed("short"), self._fixed("begin")] if self._beginning else []
        closing = [self._fixed("commit"), self._fixed("long")] if committing else []
        asking = [self._fixed("clock")] if self._clock.is_stale and not several else []
        sent = [*opening, *statements, *asking, *closing]
        commit_at = len(sent) - 2 if committing else 0 if alone else None
        packets = list(self._packets(sent))
        if opening:
            self._beginning, self._open = False, True
        results = self._exchange(packets, commit_at)
        if committing:
            self._check_closed()
        if asking:
            self._clock.hear(results[len(opening) + len(statements)].rows[0][0])
        return results[len(opening) : len(opening) + len(statements)]

    def _packets(self, statements: Sequence[bytes]) -> Iterator[bytes]:
        """Join statements, as many as fit."""
        packet: list[bytes] = []
        size = 0
        for statement in statements:
            if len(statement) > self.max_packet:
                message = f"{len(statement):,} bytes are more than the server takes at once ({self.max_packet:,})"
                raise fault.TooLarge(message)
            if packet and size + len(statement) > self.max_packet:
                yield _SEPARATOR.join(packet)
                packet, size = [], 0
            packet.append(statement)
            size += len(statement) + len(_SEPARATOR)
        if packet:
            yield _SEPARATOR.join(packet)

    def _exchange(self, packets: Sequence[bytes], commit_at: int | None) -> list[Answer]:
        if not self.usable:
            message = "the connection was given up"
            raise LinkLost(message)
        results: list[Answer] = []
        cursor = self._cursor
        self._connection.limit(self.deadline_s)
        try:
            for packet in packets:
                cursor.execute(packet)
                more: bool | None = True
                while more:
                    results.append(Answer(list(cursor.fetchall()), cursor.rowcount))
                    more = cursor.nextset()
        except (Error, OSError) as error:
            self._failed(error, len(results), commit_at)
        except BaseException:
            self.usable = False
            raise
        return results

    def _failed(self, error: Exception, answered: int, commit_at: int | None) -> None:
        """Raise what is known after an error in place of the answer after those that came."""
        if commit_at is not None and answered > commit_at:
            self.usable = False  # it is done; what came after it is of no interest
            message = "the connection was lost after COMMIT"
            raise LinkLost(message, committing=True) from error
        if fault.number_of(error) in fault.READ_ONLY:
            self.usable = False
        lost = fault.is_lost(error)
        if lost:
            self.usable = False
            message = f"the connection was lost: {fault.said(error)}"
            raise LinkLost(message, committing=commit_at is not None) from error
        if answered == commit_at and fault.is_unsure(error):
            self.usable = False
            raise LinkLost(fault.said(error), committing=True) from error
        raise error

    def _check_closed(self) -> None:
        self._open = False
        if self._connection.server_status & SERVER_STATUS_IN_TRANS:
            self.usable = False
            message = "COMMIT was answered, and the transaction is still open"
            raise LinkLost(message, committing=True)
