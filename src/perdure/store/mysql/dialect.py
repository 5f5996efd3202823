"""`perdure.store.server.dialect.Dialect` for MySQL and MariaDB, and how a store on it is opened."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pymysql.constants import CLIENT
from pymysql.err import Error  # not by way of the package: Django puts copies there

from perdure.errors import StoreUnavailable, UsageError
from perdure.store.base import Capabilities, StoreOptions
from perdure.store.instrumented import Instrumented
from perdure.store.migrate import Applied, SchemaText
from perdure.store.mysql import batch, fault, schema
from perdure.store.mysql.address import Address, address
from perdure.store.mysql.connection import Connection
from perdure.store.mysql.facts import facts
from perdure.store.mysql.link import MysqlLink
from perdure.store.mysql.statement import Statement
from perdure.store.server.clock import ServerClock
from perdure.store.server.dialect import LinkLost
from perdure.store.server.engine import ServerStore
from perdure.store.sqltext import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.filter import Fact
    from perdure.model.write import Write
    from perdure.store.base import Store
    from perdure.store.server.dialect import Fault
    from perdure.store.server.flight import SentBatch
    from perdure.store.slots import Call as Named
    from perdure.store.tails import Tails

_DURABILITY = ("host", "quorum", "process")
_CAPABILITIES = Capabilities("mysql", inline=False, durability=_DURABILITY, shared=True, hints=False, sends=True)
_PATIENCE = "it is tried again until it does; see the page on fail-over"
_CONNECT_S = 5.0
_LOCK_WAIT_S = 1
# FOUND_ROWS: an UPDATE answers how many rows it found, not how many of them it made different.
_FLAGS = CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS


def _session() -> str:
    """Return what a session is set to, before it runs anything else."""
    return ", ".join(
        (
            "set session sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
            "session time_zone = '+00:00'",
            f"session innodb_lock_wait_timeout = {_LOCK_WAIT_S}",
            "session wait_timeout = 86400",
            "session foreign_key_checks = 1",
            "session unique_checks = 1",
            "session autocommit = 1",
        )
    )


def open_store(url: str, options: StoreOptions) -> Store:
    """Return the store a ``mysql:`` URL names.

    Raises:
        UsageError: the URL is not one, or asks for a durability that the server does not have.
    """
    return Instrumented(ServerStore(MysqlDialect(address(url), options), options), fault.translate)


def schema_of(url: str) -> SchemaText:
    """Return how to look what is there to migrate.

    Raises:
        UsageError: the URL is not one.
    """
    where = address(url)

    def applied() -> list[Applied] | None:
        link = MysqlDialect(where, StoreOptions()).connect(ServerClock(), _CONNECT_S)
        try:
            return schema.MysqlSchema(link).applied()
        finally:
            link.close()

    return SchemaText(applied, str)


class MysqlDialect:
    """See the module."""

    def __init__(self, where: Address, options: StoreOptions) -> None:
        if options.durability not in _DURABILITY:
            message = f"MySQL and MariaDB have no durability {options.durability!r}"
            raise UsageError(message, hint=f"they give {', '.join(_DURABILITY)}")
        plain = re.fullmatch(r"[\w$-]+", where.database)
        self.capabilities: Capabilities = _CAPABILITIES._replace(tables=f"`{where.database}`." if plain else None)
        self.place: str = where.shown
        self.sql: dict[str, str] = queries("mysql")
        self._where = where
        self._durability = options.durability
        self._statements = {name: Statement(text) for name, text in self.sql.items()}
        self._was_there = False
        self._prepared = False

    def connect(self, clock: ServerClock, deadline_s: float) -> MysqlLink:
        """Make a connection."""
        connection = self._dial(deadline_s)
        try:
            with connection.cursor() as cursor:
                cursor.execute("set session transaction isolation level read committed")
                cursor.execute(_session())
                cursor.execute("select @@max_allowed_packet, @@sql_mode, @@character_set_client")
                packet, mode, characters = cursor.fetchone() or (0, "", "")
        except Error as error:
            connection.close()
            raise self._away(error) from error
        if "NO_BACKSLASH_ESCAPES" in mode or characters != "utf8mb4":
            connection.close()
            message = f"{self.place}: the session is not as it was set: sql_mode {mode}, characters {characters}"
            raise UsageError(message)
        self._was_there = True
        link = MysqlLink(connection, self._statements, clock, deadline_s, int(packet))
        if self._prepared:
            try:
                self._check_again(link)
            except BaseException:
                link.close()
                raise
        return link

    def _check_again(self, link: MysqlLink) -> None:
        """See whether a server still gives what it gave when the store was opened: it may be another one by now.

        With `quorum`, one that was killed while it waited for its replica shows what only it has once it is back. A
        commit that the replica confirms says that the replica has all that was there before.

        Raises:
            StoreUnavailable: not now.
        """
        found = schema.given(link)
        wrong = schema.problems(found, self._durability)
        if not wrong and self._durability == "quorum" and not schema.replicas(found):
            wrong = ["no replica is connected"]
        if wrong:
            message = f"{self.place} does not give durability {self._durability!r} any more: {'; '.join(wrong)}"
            raise StoreUnavailable(message, hint=_PATIENCE)
        try:
            link.begin()
            self.seal(link)
            link.commit()
        except LinkLost as lost:
            message = f"{self.place}: no replica confirms what this server shows ({lost})"
            raise StoreUnavailable(message, hint=_PATIENCE) from lost

    def _dial(self, deadline_s: float) -> Connection:
        try:
            return Connection(
                **self._where.parameters,
                charset="utf8mb4",
                client_flag=_FLAGS,
                connect_timeout=_CONNECT_S,
                read_timeout=deadline_s,
                write_timeout=deadline_s,
                autocommit=None,
                program_name="perdure",
            )
        except Error as error:
            raise self._away(error) from error

    def _away(self, error: Error) -> StoreUnavailable | UsageError:
        """Return what to raise where there is no connection. What was right once is not called wrong later."""
        text = f"{self.place}: {fault.said(error)}"
        meant = fault.translate(error)
        if isinstance(meant, UsageError) and not self._was_there:
            missing = fault.number_of(error) == fault.NO_DATABASE
            return UsageError(text, hint="create database ..." if missing else "check user, password and rights")
        return StoreUnavailable(text)

    def prepare(self, link: MysqlLink, *, migrate: bool, create: bool, read_only: bool) -> None:
        """Check what the server gives, and bring the schema up to date."""
        schema.check(schema.given(link), self._durability)
        schema.prepare(link, migrate=migrate, create=create, read_only=read_only)
        self._prepared = not read_only

    def apply(self, link: MysqlLink, writes: Sequence[Write], tails: Tails) -> None:
        """Commit a batch in a transaction of its own."""
        batch.apply(link, self._statements, writes, tails)

    def send(self, link: MysqlLink, writes: Sequence[Write], tails: Tails) -> SentBatch:
        """Send a batch in a transaction of its own."""
        return batch.send(link, self._statements, writes, tails)

    def attempt(self, link: MysqlLink, writes: Sequence[Write], ends: Tails, *, hurry: bool = False) -> None:
        """Apply writes inside the open transaction."""
        batch.attempt(link, self._statements, writes, ends, hurry=hurry)

    def conclude(self, link: MysqlLink, writes: Sequence[Write], ends: Tails, calls: Sequence[Named]) -> None:
        """Apply writes, run statements and commit."""
        batch.conclude(link, self._statements, writes, ends, calls)

    def beat(self, link: MysqlLink, worker_id: str, lease_us: int, *, owned: bool) -> Sequence[tuple[Any, ...]] | None:
        """See `Dialect`."""
        beat = ("heartbeat", lease_us, worker_id) if lease_us > 0 else ("leave", worker_id)
        beaten, *found = link.many(beat, *[("owned", worker_id)] * owned)
        return None if beaten.affected != 1 else [row for result in found for row in result.rows]

    def end_session(self, link: MysqlLink, session: str) -> None:
        """Nothing is known of a session."""

    def seal(self, link: MysqlLink) -> None:
        """Give the transaction something to wait for: what comes before it in the server's log is then there, too."""
        if self._durability == "quorum":
            row = f"seal {uuid4().hex}"
            link.many(("seal", row), ("unseal", row))

    def listen(self, link: MysqlLink) -> bool:  # noqa: ARG002
        """Return False: the server has no hints. Everybody polls."""
        return False

    def hint(self, link: MysqlLink) -> None:
        """Do nothing."""

    def facts(self, link: MysqlLink) -> tuple[Fact, ...]:
        """Return what this server really is."""
        return facts(link, self._durability)

    def fault(self, error: Exception) -> Fault:
        """Say what an error is about."""
        return fault.fault(error)

    def translate(self, error: Exception) -> Exception | None:
        """Return what to raise instead of an error."""
        return fault.translate(error)
