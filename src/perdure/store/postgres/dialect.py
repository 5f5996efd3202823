"""`perdure.store.server.dialect.Dialect` for PostgreSQL, and how a store on it is opened."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg

from perdure.errors import StoreUnavailable, UsageError
from perdure.store.base import Capabilities, StoreOptions
from perdure.store.instrumented import Instrumented
from perdure.store.migrate import Applied, SchemaText
from perdure.store.postgres import batch, fault, refusal, schema
from perdure.store.postgres.address import Address, address
from perdure.store.postgres.facts import facts
from perdure.store.postgres.link import PostgresLink
from perdure.store.server.clock import ServerClock
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
_CAPABILITIES = Capabilities("postgres", inline=False, durability=_DURABILITY, shared=True, sends=True)
_SYNCHRONOUS_COMMIT = {"host": "on", "quorum": "on", "process": "off"}
_KEEPALIVE = {
    "keepalives": "1", "keepalives_idle": "10", "keepalives_interval": "3",
    "keepalives_count": "3", "tcp_user_timeout": "15000", "application_name": "perdure",
}  # fmt: skip
_LOOK_S = 10.0
_LONGEST_DIAL_S = 5
_LOCK_WAIT_MS = 300
"""How long a statement waits for somebody else's transaction: all that is in its batch waits with it."""
_IDLE_MS = 5000
"""How long the server waits for the rest of a transaction."""


def open_store(url: str, options: StoreOptions) -> Store:
    """Return the store a ``postgresql:`` URL names.

    Raises:
        UsageError: the URL is not one, or asks for a durability that PostgreSQL does not have.
    """
    return Instrumented(ServerStore(PostgresDialect(address(url), options), options), fault.translate)


def schema_of(url: str) -> SchemaText:
    """Return how to look what is there to migrate.

    Raises:
        UsageError: the URL is not one.
    """
    where = address(url)

    def applied() -> list[Applied] | None:
        link = PostgresDialect(where, StoreOptions()).connect(ServerClock(), _LOOK_S)
        try:
            return schema.PostgresSchema(link, where.schema).applied()
        finally:
            link.close()

    return SchemaText(applied, lambda sql: schema.in_schema(sql, where.schema))


class PostgresDialect:
    """See the module."""

    def __init__(self, where: Address, options: StoreOptions) -> None:
        if options.durability not in _SYNCHRONOUS_COMMIT:
            message = f"PostgreSQL has no durability {options.durability!r}"
            raise UsageError(message, hint=f"it gives {', '.join(_SYNCHRONOUS_COMMIT)}")
        self.capabilities: Capabilities = _CAPABILITIES._replace(tables=f'"{where.schema}".')
        self.place: str = where.shown
        statements = queries("postgres", schema="perdure.", one_of="= any(?::text [])")
        self.sql: dict[str, str] = {name: schema.in_schema(text, where.schema) for name, text in statements.items()}
        self._where = where
        self._durability = options.durability
        settings = {
            "default_transaction_isolation": "read committed",
            "synchronous_commit": _SYNCHRONOUS_COMMIT[options.durability],
            "statement_timeout": str(int(options.busy_timeout_s * 1000)),
            "lock_timeout": str(_LOCK_WAIT_MS),
            "idle_in_transaction_session_timeout": str(_IDLE_MS),
            "jit": "off",
        }
        given = settings | {"idle_session_timeout": "0"}  # between transactions a connection may rest
        self._settings = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in given.items())
        alone = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in list(settings.items())[1:])
        self.sql["set_alone"] = f"select {alone}"
        self._name = uuid4().hex
        self._channel = f"perdure_{where.schema}"
        self.sql["listen"] = f'listen "{self._channel}"'
        self._statements = batch.statements(self.sql)
        self._pooled = where.pooled
        self._was_there = False
        self._prepared = False

    def connect(self, clock: ServerClock, deadline_s: float) -> PostgresLink:
        """Make a connection."""
        try:
            connection = self._dial(deadline_s)
        except psycopg.OperationalError as error:
            raise self._away(error, deadline_s) from error
        self._was_there = True
        waits = self._durability == "quorum"
        link = PostgresLink(connection, self._statements, clock, deadline_s, pooled=True, name=self._name, waits=waits)
        try:
            found = schema.given(link)
            if self._prepared:
                self._check_again(found)
            # A pooler makes up the number of the process that serves a connection.
            pooled = self._where.pooled or found.pid != connection.pgconn.backend_pid
        except BaseException:
            link.close()
            raise
        if pooled or not self._pooled:
            link.pooled = self._pooled = pooled
            link.session = "" if pooled else f"{found.pid} {found.started}"
            return link
        link.close()  # taken for one behind a pooler, because the server was just starting
        self._pooled = False
        return self.connect(clock, deadline_s)

    def _away(self, error: psycopg.OperationalError, deadline_s: float) -> StoreUnavailable | UsageError:
        """Return what to raise where there is no connection. What was right once is not called wrong later."""
        text = f"{self.place}: {fault.said(error)}"
        late = isinstance(error, psycopg.errors.ConnectionTimeout)
        if not (self._was_there or late) and refusal.is_wrong(self._where.parameters, deadline_s):
            return UsageError(text, hint="check user, password and database")
        return StoreUnavailable(text)

    def _dial(self, deadline_s: float) -> psycopg.Connection[Any]:
        limit = str(min(max(2, ceil(deadline_s)), _LONGEST_DIAL_S))  # libpq takes no less than two seconds
        parameters: dict[str, Any] = {
            "connect_timeout": limit, **_KEEPALIVE, **self._where.parameters, "client_encoding": "UTF8"
        }  # fmt: skip
        if not self._pooled:
            own = self._where.parameters.get("options", "")
            try:
                return psycopg.connect(autocommit=True, **parameters | {"options": f"{own} {self._settings}".strip()})
            except psycopg.errors.ConnectionTimeout:
                raise
            except psycopg.OperationalError:
                pass  # perhaps a pooler, which refuses settings at the start; what else is wrong will show again
        connection = psycopg.connect(autocommit=True, **parameters)
        self._pooled = True
        return connection

    def _check_again(self, found: schema.Given) -> None:
        """See whether a server still gives what it gave when the store was opened: it may be another one by now.

        Raises:
            StoreUnavailable: not now.
        """
        wrong = schema.problems(found, self._durability)
        if found.in_recovery:
            wrong.append("it is a standby")
        if wrong:
            message = f"{self.place} does not give durability {self._durability!r} any more: {'; '.join(wrong)}"
            raise StoreUnavailable(message, hint="it is tried again until it does; see the page on fail-over")

    def prepare(self, link: PostgresLink, *, migrate: bool, create: bool, read_only: bool) -> None:
        """Check what the server gives, and bring the schema up to date."""
        found = schema.given(link)
        schema.check(found, self._durability)
        schema.prepare(link, self._where.schema, migrate=migrate, create=create, read_only=read_only)
        self._prepared = not read_only

    def apply(self, link: PostgresLink, writes: Sequence[Write], tails: Tails) -> None:
        """Commit a batch in a transaction of its own."""
        batch.apply(link, self._statements, writes, tails)

    def send(self, link: PostgresLink, writes: Sequence[Write], tails: Tails) -> SentBatch:
        """Send a batch in a transaction of its own."""
        return batch.send(link, self._statements, writes, tails)

    def attempt(self, link: PostgresLink, writes: Sequence[Write], ends: Tails, *, hurry: bool = False) -> None:
        """Apply writes inside the open transaction."""
        batch.attempt(link, self._statements, writes, ends, hurry=hurry)

    def conclude(self, link: PostgresLink, writes: Sequence[Write], ends: Tails, calls: Sequence[Named]) -> None:
        """Apply writes, run statements and commit."""
        batch.conclude(link, self._statements, writes, ends, calls)

    def beat(
        self,
        link: PostgresLink,
        worker_id: str,
        lease_us: int,
        *,
        owned: bool,  # noqa: ARG002 - it is one statement
    ) -> Sequence[tuple[Any, ...]] | None:
        """See `Dialect`."""
        beat = ("heartbeat", lease_us, worker_id) if lease_us > 0 else ("leave", worker_id)
        rows = link.execute(*beat).rows
        return [row for row in rows if row[0] is not None] if rows else None

    def end_session(self, link: PostgresLink, session: str) -> None:
        """End the server's process for a connection that was lost, and wait until it is gone."""
        pid, _, started = session.partition(" ")
        link.execute("end_session", int(pid), started)

    def seal(self, link: PostgresLink) -> None:
        """Give the transaction something to wait for: what comes before it in the server's log is then there, too."""
        if self._durability == "quorum":
            link.execute("seal")

    def listen(self, link: PostgresLink) -> bool:
        """Have hints of other processes sent to this connection."""
        if not link.pooled:
            link.execute("listen")
        return not link.pooled

    def hint(self, link: PostgresLink) -> None:
        """Send a hint to other processes."""
        link.execute("hint", self._channel, self._name)

    def facts(self, link: PostgresLink) -> tuple[Fact, ...]:
        """Return what this server really is."""
        return facts(link, self._where.schema, self._durability)

    def fault(self, error: Exception) -> Fault:
        """Say what an error is about."""
        return fault.fault(error)

    def translate(self, error: Exception) -> Exception | None:
        """Return what to raise instead of an error."""
        return fault.translate(error)
