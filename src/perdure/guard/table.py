"""The table of requests in the application's database: what it is, how it is made, how it is kept small."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, cast

from perdure.errors import InvalidValue, UsageError
from perdure.guard.faults import meaning
from perdure.guard.link import Guarded, Link, link
from perdure.guard.statement import MYSQL, POSTGRESQL, SQLITE, Query, Steps
from perdure.model.duration import Duration, microseconds

MOST_BYTES: Final = 2000
"""Of a request's id in UTF-8: what every database can have in a primary key."""

_TABLE: Final = {
    SQLITE: """\
create table if not exists perdure_guard (
    request_id text primary key not null,
    body_digest integer,
    answer text,
    created_at text not null
)""",
    POSTGRESQL: """\
create table if not exists perdure_guard (
    request_id text collate "C" primary key,
    body_digest bigint,
    answer text,
    created_at timestamptz not null
)""",
    # Bytes: as a text, ids would be equal that differ in case or in blanks at their end.
    MYSQL: f"""\
create table if not exists perdure_guard (
    request_id varbinary({MOST_BYTES}) primary key,
    body_digest bigint,
    answer longtext character set utf8mb4 collate utf8mb4_bin,
    created_at datetime(6) not null,
    index perdure_guard_created_at (created_at)
) engine = InnoDB""",
}
_INDEX: Final = "create index if not exists perdure_guard_created_at on perdure_guard (created_at)"
NOW: Final = {SQLITE: "datetime('now')", POSTGRESQL: "clock_timestamp()", MYSQL: "utc_timestamp(6)"}
_BEFORE: Final = {
    SQLITE: "datetime('now', '-' || ? || ' seconds')",
    POSTGRESQL: "clock_timestamp() - make_interval(secs => ?)",
    MYSQL: "utc_timestamp(6) - interval ? second",
}


def statements(dialect: str) -> tuple[str, ...]:
    """Return what makes the table, one statement after the other."""
    return (_TABLE[dialect],) if dialect == MYSQL else (_TABLE[dialect], _INDEX)


def schema(dialect: str) -> str:
    """Return the SQL that makes the table of requests, to print it or to put it into a migration of your own.

    Args:
        dialect: ``"sqlite"``, ``"postgresql"`` or ``"mysql"`` (MariaDB too).

    Raises:
        InvalidValue: another word.
    """
    if dialect not in _TABLE:
        message = f"there is no dialect {dialect!r}; there are {', '.join(_TABLE)}"
        raise InvalidValue(message)
    return "".join(f"{text};\n" for text in statements(dialect))


class CreateTable:
    """Make the table of requests, `perdure_guard`, if it is not there yet, and commit.

    Outside of a transaction, because MySQL would commit what is open, and so once: when the application starts, or by
    hand. `schema` has the statements. Call it with a blocking connection, or await its ``aio`` with an async one.

    Raises:
        UsageError: a transaction is open on the connection.
    """

    def __call__(self, connection: Any) -> None:
        """Do it over a blocking connection."""
        over = link(connection, is_async=False)
        try:
            over.create(statements(over.dialect))
        except Exception as error:
            if not _made_by_another(error, over):
                raise

    async def aio(self, connection: Any) -> None:
        """Do it over an async connection."""
        over = link(connection, is_async=True)
        try:
            await cast("Awaitable[None]", over.create(statements(over.dialect)))
        except Exception as error:
            if not _made_by_another(error, over):
                raise


def _made_by_another(error: Exception, over: Link) -> bool:
    """On PostgreSQL "if not exists" does not see a table that another transaction is about to make."""
    return over.dialect == POSTGRESQL and meaning(error, over.dialect) == "duplicate"


create_table: CreateTable = CreateTable()


@Guarded
def forget(connection: Link, older_than: Duration, limit: int = 10_000) -> Steps[int]:
    """Forget requests that are older than a span of time, in the caller's transaction. Returns how many.

    A request that is forgotten is new when it comes again: keep each for as long as a sender may repeat it.

    Args:
        connection: the application's connection, with its transaction.
        older_than: age from which on they are forgotten.
        limit: at most so many in one call, so that no transaction becomes long.
    """
    seconds = microseconds(older_than, "older_than") / 1_000_000
    if type(limit) is not int or limit < 1:
        message = f"limit must be a whole number of at least 1, not {limit!r}"
        raise UsageError(message)
    dialect = connection.dialect
    old = f"created_at < {_BEFORE[dialect]}"
    if dialect == MYSQL:
        done = yield Query(f"delete from perdure_guard where {old} order by created_at limit ?", (seconds, limit))
    else:
        chosen = f"select request_id from perdure_guard where {old} order by created_at limit ?"
        done = yield Query(f"delete from perdure_guard where request_id in ({chosen})", (seconds, limit))
    return done.affected
