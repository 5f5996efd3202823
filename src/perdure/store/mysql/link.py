"""One connection to MySQL or MariaDB.

INV-1  Statements go out together, in as few packets as the server takes; the first error ends them.
INV-2  After an error the transaction is only ever undone, as a whole: the server may have undone nothing, one statement
       or all of it. COMMIT counts only when it is answered, and the server says that no transaction is open.
INV-3  A call that takes longer than its deadline, or whose answer breaks off, ends the connection.
INV-4  While a transaction is open the server waits only seconds for its client, so that a frozen one holds no locks.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS
from pymysql.err import Error  # not by way of the package: Django puts copies there

from perdure.store.mysql import fault
from perdure.store.mysql.connection import Connection
from perdure.store.mysql.frames import Frames, framed
from perdure.store.mysql.levels import demand, levels
from perdure.store.mysql.statement import Statement
from perdure.store.server.dialect import LinkLost, Value
from perdure.store.server.dialect import Result as Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perdure.store.server.clock import ServerClock

_LEVELS, _DEMAND = "levels", "demand"
_SEPARATOR = b";\n"
_QUERY = b"\x03"
_SPARE = 1024
"""Bytes of a packet that are not SQL."""


class Sent:
    """Statements that are on their way, and what has been answered so far."""

    __slots__ = ("asked", "commit_at", "deadline", "frames", "lead", "number", "packets", "results", "unsent", "wanted")

    def __init__(self, packets: Sequence[bytes], *, lead: int, wanted: int, asked: int, commit_at: int | None) -> None:
        self.packets: list[bytes] = list(reversed(packets))
        """Those that were not begun, the last one first."""
        self.lead: int = lead
        """So many statements begin the transaction."""
        self.wanted: int = wanted
        """So many answers after these are for the caller."""
        self.asked: int = asked
        """So many after these say what time it is: one, or none."""
        self.commit_at: int | None = commit_at
        """Place of the COMMIT, or of the only statement."""
        self.deadline: float = 0.0
        """When it must have been answered, on the monotonic clock."""
        self.unsent: memoryview = memoryview(b"")
        """What of the packet that was begun is not in the hands of the system yet."""
        self.number: int = 1
        """Of the first frame of its answer."""
        self.frames: Frames = Frames()
        self.results: list[Answer] = []


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
            return levels(self.run, self._statements, self._clock, [values for _, *values in calls])
        if calls and calls[0][0] == _DEMAND:
            return self.run([demand(self._statements, *values) for _, *values in calls])
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
        sent = self._prepared(statements, committing=committing, alone=alone, several=several)
        self._exchange(sent)
        return self.answers(sent)

    def _prepared(
        self, statements: Sequence[bytes], *, committing: bool, alone: bool = False, several: bool = False
    ) -> Sent:
        opening = [self._fixed("short"), self._fixed("begin")] if self._beginning else []
        closing = [self._fixed("commit"), self._fixed("long")] if committing else []
        asking = [self._fixed("clock")] if self._clock.is_stale and not several else []
        whole = [*opening, *statements, *asking, *closing]
        commit_at = len(whole) - 2 if committing else 0 if alone else None
        packets = list(self._packets(whole))
        if opening:
            self._beginning, self._open = False, True
        sent = Sent(packets, lead=len(opening), wanted=len(statements), asked=len(asking), commit_at=commit_at)
        sent.deadline = monotonic() + self.deadline_s
        return sent

    def answers(self, sent: Sent) -> list[Answer]:
        """Return what each statement gave; see `run`. All has been answered."""
        results = sent.results
        last = sent.lead + sent.wanted
        if len(results) > last + sent.asked:  # a COMMIT, and what comes after it
            self._check_closed()
        if sent.asked:
            self._clock.hear(results[last].rows[0][0])
        return results[sent.lead : last]

    # ---- the same, without a wait ----

    @property
    def socket(self) -> int:
        """What becomes readable when an answer comes."""
        return self._connection.fileno()

    def start(self, statements: Sequence[bytes], *, committing: bool = False, alone: bool = False) -> Sent:
        """Send statements and wait for nothing; see `run`. What is sent is to be brought to its end by `advance`."""
        self._check_usable()
        sent = self._prepared(statements, committing=committing, alone=alone)
        try:
            self._begin_packet(sent)
        except OSError as error:
            self._failed(error, 0, sent.commit_at)
        return sent

    def advance(self, sent: Sent) -> bool:
        """Send and take in what can be without a wait. Whether all of it was answered.

        Raises:
            LinkLost: the connection is gone.
            Error: the server refuses a statement; nothing after it was done.
        """
        try:
            return self._advance(sent)
        except (Error, OSError) as error:
            self._failed(error, len(sent.results), sent.commit_at)

    def expire(self, sent: Sent) -> None:
        """Give up what has not been answered in time. Raises `LinkLost`."""
        why = TimeoutError(f"the server did not answer within {self.deadline_s:.1f} s")
        self._failed(why, len(sent.results), sent.commit_at)

    def _begin_packet(self, sent: Sent) -> None:
        question, sent.number = framed(_QUERY + sent.packets.pop())
        sent.frames, sent.unsent = Frames(), memoryview(question)
        self._push(sent)

    def _push(self, sent: Sent) -> None:
        while sent.unsent and (count := self._connection.send_some(sent.unsent)):
            sent.unsent = sent.unsent[count:]

    def _advance(self, sent: Sent) -> bool:
        self._push(sent)
        frames = sent.frames
        while not frames.complete and (data := self._connection.receive_some()):
            frames.add(data)
        if not frames.complete:
            return False
        for answer in self._connection.results(bytes(frames.data), sent.number):
            sent.results.append(answer)  # one by one: an error says how many there were
        if sent.packets:
            self._begin_packet(sent)
            return False
        return True

    # ---- packets, with a wait ----

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

    def _check_usable(self) -> None:
        if not self.usable:
            message = "the connection was given up"
            raise LinkLost(message)

    def _exchange(self, sent: Sent) -> None:
        self._check_usable()
        results, cursor = sent.results, self._cursor
        self._connection.limit(self.deadline_s)
        try:
            while sent.packets:
                cursor.execute(sent.packets.pop())
                more: bool | None = True
                while more:
                    results.append(Answer(list(cursor.fetchall()), cursor.rowcount))
                    more = cursor.nextset()
        except (Error, OSError) as error:
            self._failed(error, len(results), sent.commit_at)
        except BaseException:
            self.usable = False
            raise

    def _failed(self, error: Exception, answered: int, commit_at: int | None) -> NoReturn:
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
