"""One connection to PostgreSQL.

INV-1  Statements go out as one pipeline, which the server answers as a whole: a call is one round trip.
INV-2  After an error the transaction is only ever undone. COMMIT counts only when it is answered by COMMIT.
INV-3  A call that takes longer than its deadline, or whose answer breaks off, ends the connection.
INV-4  Behind a pooler there is no state of a session: nothing prepared, nothing set, nothing listened to.
"""

from __future__ import annotations

import select
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import capabilities, pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from perdure.store.postgres.array import texts
from perdure.store.postgres.fault import said
from perdure.store.postgres.text import escaped, unescaped_row
from perdure.store.server.dialect import LinkLost, Result, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.store.server.clock import ServerClock

_IDLE, _IN_ERROR = pq.TransactionStatus.IDLE, pq.TransactionStatus.INERROR
_OK, _ROWS, _SYNC = pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.PIPELINE_SYNC
_FATAL, _SKIPPED = pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED
_UNSURE = frozenset({"08", "57", "58", "XX"})
"""Classes of errors after which a COMMIT may have happened all the same: the server was stopped, or failed, in it."""
_STALE = frozenset({"0A000", "25006", "26000", "42P05"})
"""What is prepared is not what it was: the schema has changed, another session is answering, or the server has become a
standby, and another one takes writes now."""
_BINARY = 1
_LOOK_MS = 500
"""So often an answer is looked for. libpq 15.18 and 17.5 may take in half of a record of TLS; the rest no socket shows
(https://github.com/ged/ruby-pg/issues/588). 18.6 takes in all of it."""


class Statement:
    """A statement with a name of its own, under which a connection may have prepared it."""

    __slots__ = ("columns", "name", "sql")
    _numbers = count(1)

    def __init__(self, sql: str, columns: Sequence[int] = ()) -> None:
        self.sql: bytes = numbered(sql).encode()
        self.columns: tuple[int, ...] = tuple(columns)
        """Object ids of its parameters, all binary; empty if they are to be found out, and are text."""
        self.name: bytes = b"perdure_%d" % next(self._numbers)


class Call(NamedTuple):
    """A statement and what it is run with."""

    statement: Statement
    values: Sequence[bytes | None] = ()
    formats: Sequence[int] | None = None


def numbered(sql: str) -> str:
    """Return a statement with ``$1``, ``$2``, ... for its question marks."""
    head, *rest = sql.split("?")
    return head + "".join(f"${n}{part}" for n, part in enumerate(rest, start=1))


def call(statement: Statement, values: Sequence[Value]) -> Call:
    """Return a call with values given as text, as bytes, or as an array of texts.

    Raises:
        TypeError: a value is of another type: as text it would be stored as something else than was given.
    """
    given: list[bytes | None] = []
    formats: list[int] = []
    for value in values:
        if isinstance(value, bytes):
            given.append(value)
            formats.append(_BINARY)
        elif isinstance(value, tuple):
            given.append(texts(value))
            formats.append(_BINARY)
        elif value is None or isinstance(value, str | int):
            given.append(None if value is None else escaped(str(value)).encode())
            formats.append(0)
        else:
            message = f"{type(value).__name__} is no type of a value here"
            raise TypeError(message)
    return Call(statement, given, formats)


class Sent:
    """A pipeline that is on its way, and what has been answered so far."""

    __slots__ = ("asked", "committing", "deadline", "expected", "lead", "preparing", "results", "unsent")

    def __init__(self, *, committing: bool, lead: int, asked: int | None, deadline: float) -> None:
        self.committing: bool = committing
        """The last statement is a COMMIT."""
        self.lead: int = lead
        """So many statements begin the transaction."""
        self.asked: int | None = asked
        """Place of the question what time it is."""
        self.deadline: float = deadline
        """When it must have been answered, on the monotonic clock."""
        self.preparing: dict[int, bytes] = {}
        self.expected: int = 0
        self.results: list[pq.abc.PGresult] = []
        self.unsent: bool = False
        """Not all of it is in the hands of the system yet."""


class PostgresLink:
    """See the module and `perdure.store.server.dialect.Link`."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        statements: dict[str, Statement],
        clock: ServerClock,
        deadline_s: float,
        *,
        pooled: bool,
        name: str,
        waits: bool = False,
    ) -> None:
        self._name = name.encode()
        """What our own hints are known by."""
        self._waits = waits
        """A commit waits for a standby. When that wait is cut short, the server warns, and confirms the commit."""
        self._warned = False
        if waits:
            connection.add_notice_handler(self._notice)
        self._connection = connection
        self._pgconn = connection.pgconn
        self.socket: int = connection.pgconn.socket
        """What becomes readable when an answer comes."""
        self._statements = statements
        self._clock = clock
        self.deadline_s: float = deadline_s
        self.pooled: bool = pooled
        """A pooler is in between: each transaction may be on another connection to the server."""
        self.usable: bool = True
        self.session: str = ""
        """Process and its start, by which the server knows this connection."""
        self._beginning = False
        self._heard = 0
        self._prepared: set[bytes] = set()
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)
        self._reader = Transformer(connection)
        self._pgconn.enter_pipeline_mode()

    # ---- the protocol of the seam ----

    def execute(self, name: str, *values: Value) -> Result:
        """Run a named statement."""
        return self.run([call(self._statements[name], values)])[0]

    def many(self, *calls: tuple[Any, ...]) -> list[Result]:
        """Run named statements in one round trip."""
        return self.run([call(self._statements[name], values) for name, *values in calls])

    def query(self, sql: str, values: Sequence[Value]) -> Result:
        """Run a statement put together from named parts."""
        return self.run([call(Statement(sql), values)], prepare=False)[0]

    def script(self, sql: str) -> None:
        """Run several statements without values, inside the open transaction."""
        self._pgconn.exit_pipeline_mode()
        try:
            result = self._pgconn.exec_(sql.encode())
        finally:
            self._pgconn.enter_pipeline_mode()
        if result.status not in (_OK, _ROWS):
            raise error_from_result(result)

    def begin(self) -> None:
        """Begin a transaction, with the next statement."""
        self._beginning = True

    def commit(self) -> None:
        """End the transaction."""
        self.run([Call(self._statements["commit"])], committing=True)

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        if self._beginning or not self.usable:
            self._beginning = False
        elif self._pgconn.transaction_status != _IDLE:
            self.run([Call(self._statements["rollback"])])

    def heard(self) -> int:
        """Return how many hints of other processes have come so far."""
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
        except psycopg.OperationalError:
            self.usable = False
            return self._heard + 1
        while (notice := pgconn.notifies()) is not None:
            self._heard += notice.extra != self._name
        return self._heard

    def close(self) -> None:
        """Let the connection go."""
        self.usable = False
        with suppress(Exception):
            self._connection.close()

    # ---- pipelines ----

    @property
    def opening(self) -> list[Call]:
        """What begins a transaction here."""
        statements = self._statements
        if self.pooled:
            return [Call(statements["begin_alone"]), Call(statements["set_alone"])]
        return [Call(statements["begin"])]

    def run(self, calls: Sequence[Call], *, committing: bool = False, prepare: bool = True) -> list[Result]:
        """Run statements in one round trip and return what each gave.

        Args:
            calls: outside of a transaction they are one by themselves.
            committing: the last one is a COMMIT.
            prepare: keep the statements prepared, where that is possible.

        Raises:
            LinkLost: the answer did not come, or not in time.
            psycopg.Error: the first error; nothing after it was done.
        """
        sent = self.start(calls, committing=committing, prepare=prepare)
        while not self.advance(sent):
            self._wait(sent)
        return self.answers(sent)

    def start(self, calls: Sequence[Call], *, committing: bool = False, prepare: bool = True) -> Sent:
        """Send statements and wait for nothing; see `run`. What is sent is to be brought to its end by `advance`."""
        if not self.usable:
            message = "the connection was given up"
            raise LinkLost(message)
        self._warned = False
        opening = self.opening if self._beginning else []
        self._beginning = False
        calls = [*opening, *calls]
        asked = None
        if self._clock.is_stale:
            asked = len(calls) - committing
            calls.insert(asked, Call(self._statements["clock"]))
        sent = Sent(committing=committing, lead=len(opening), asked=asked, deadline=monotonic() + self.deadline_s)
        try:
            self._send(calls, sent, prepare=prepare and not self.pooled)
        except (psycopg.Error, OSError) as error:
            self._ended(sent, error)
        return sent

    def advance(self, sent: Sent) -> bool:
        """Send and take in what can be without a wait. Whether all of it was answered.

        Raises:
            LinkLost: the connection is gone.
        """
        if not self.usable:
            return True
        try:
            return self._advance(sent)
        except (psycopg.Error, OSError) as error:
            self._ended(sent, error)
            return True

    def answers(self, sent: Sent) -> list[Result]:
        """Return what each statement gave; see `run`."""
        answers = []
        for place, result in enumerate(sent.results):
            name = sent.preparing.get(place)
            if result.status == _FATAL:
                self._refused(result, last=place == sent.expected - 1, committing=sent.committing)
            if name is not None:
                self._prepared.add(name)
            else:
                answers.append(result)
        if sent.committing and answers[-1].command_status != b"COMMIT":
            self.usable = False
            message = f"COMMIT was answered by {answers[-1].command_status!r}: nothing was recorded"
            raise LinkLost(message)
        if sent.committing and self._warned:
            self.usable = False
            message = "the wait for a standby was cut short"
            raise LinkLost(message, committing=True)
        results = [self._result(answer) for answer in answers]
        if sent.asked is not None:
            self._clock.hear(results.pop(sent.asked).rows[0][0])
        return results[sent.lead :]

    def _notice(self, notice: psycopg.errors.Diagnostic) -> None:
        self._warned = self._warned or notice.severity_nonlocalized == "WARNING"

    def _send(self, calls: Sequence[Call], sent: Sent, *, prepare: bool) -> None:
        pgconn, preparing = self._pgconn, sent.preparing
        place = 0
        for statement, values, formats in calls:
            binary = formats if formats is not None else [_BINARY] * len(values)
            if not prepare:
                pgconn.send_query_params(statement.sql, values, statement.columns or None, binary, _BINARY)
            else:
                if statement.name not in self._prepared and statement.name not in preparing.values():
                    pgconn.send_prepare(statement.name, statement.sql, statement.columns or None)
                    preparing[place] = statement.name
                    place += 1
                pgconn.send_query_prepared(statement.name, values, binary, _BINARY)
            place += 1
        pgconn.pipeline_sync()
        sent.expected = place
        sent.unsent = bool(pgconn.flush())

    def _take_in(self) -> None:
        """Take in all that has come. What an older libpq leaves of a record is there for its next call."""
        self._pgconn.consume_input()
        if self._pgconn.ssl_in_use:
            self._poll.modify(self.socket, select.POLLIN)
            while self._poll.poll(0):
                self._pgconn.consume_input()
            self._pgconn.consume_input()

    def _advance(self, sent: Sent) -> bool:
        pgconn = self._pgconn
        self._take_in()
        if sent.unsent:
            sent.unsent = bool(pgconn.flush())
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                if pgconn.status != pq.ConnStatus.OK:
                    message = "the connection is gone"
                    raise psycopg.OperationalError(message)
            elif result.status == _SYNC:
                return True
            elif result.status == _FATAL and not result.error_field(pq.DiagnosticField.SQLSTATE):
                raise error_from_result(result)
            else:
                sent.results.append(result)
        return False

    def _wait(self, sent: Sent) -> None:
        """Wait for the server, and end what takes too long.

        A COMMIT is never cancelled: the server would stop waiting for the standby and show everybody what may still be
        lost with it. With an older libpq nothing is cancelled: asking for it would have no deadline.
        """
        if (left := sent.deadline - monotonic()) > 0:
            self._poll.modify(self.socket, select.POLLIN | select.POLLOUT if sent.unsent else select.POLLIN)
            self._poll.poll(min(left * 1000 + 1, _LOOK_MS))
            return
        if not sent.committing and capabilities.has_cancel_safe():
            with suppress(Exception):
                self._connection.cancel_safe(timeout=1.0)
        self.expire(sent)

    def expire(self, sent: Sent) -> None:
        """Give up what has not been answered in time. Raises `LinkLost`."""
        self._ended(sent, TimeoutError(f"the server did not answer within {self.deadline_s:.1f} s"))

    def _ended(self, sent: Sent, why: Exception) -> None:
        """Say what is known after the answers broke off.

        Raises:
            LinkLost: unless everything had been answered by then.
        """
        self.usable = False
        results, committing = sent.results, sent.committing
        refused = next((error_from_result(result) for result in results if result.status == _FATAL), None)
        if committing and results and results[-1].command_status == b"COMMIT":
            return
        message = f"the connection was lost: {said(refused or why)}"
        raise LinkLost(message, committing=committing and not refused, session=self.session) from refused or why

    def _refused(self, result: pq.abc.PGresult, *, last: bool, committing: bool) -> None:
        """Raise what the server said."""
        error = error_from_result(result)
        if self._pgconn.status != pq.ConnStatus.OK:
            self.usable = False
        if error.sqlstate in _STALE:
            self.usable = False
        if committing and last and (error.sqlstate or "XX")[:2] in _UNSURE:
            self.usable = False
            raise LinkLost(str(error), committing=True) from error
        raise error

    def _result(self, answer: pq.abc.PGresult) -> Result:
        if answer.status != _ROWS or not answer.ntuples:
            return Result([], answer.command_tuples or 0)
        self._reader.set_pgresult(answer)
        rows = self._reader.load_rows(0, answer.ntuples, tuple)
        return Result([unescaped_row(row) for row in rows], answer.ntuples)
