"""What this server really is: what it gives, what the role may do, and how old and bloated things are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.model.filter import Fact
from perdure.store.migrate import migrations
from perdure.store.postgres.schema import given, problems

if TYPE_CHECKING:
    from perdure.store.postgres.link import PostgresLink
    from perdure.store.postgres.schema import Given

_OLD_S = 600
MUCH_DEAD = 20_000
"""So many dead rows in a table that has fewer live ones. Autovacuum comes at 20 % of the live ones at the latest: with
more than all of them it is held up, and whoever comes across dead rows steps over each. Few are no matter."""
_OLD_XIDS = 1_000_000_000
_FEW_CONNECTIONS = 5


def facts(link: PostgresLink, schema: str, durability: str) -> tuple[Fact, ...]:
    """Return what there is to know."""
    found = given(link)
    migration, rights, tables, horizon, age, room = (
        result.rows
        for result in link.many(
            ("migrations",), ("rights", schema), ("tables", schema), ("horizon",), ("ages",), ("room",)
        )
    )
    number, name, _ = migration[-1]
    current = int(number) >= len(migrations("postgres"))
    return (
        Fact("postgresql", found.version),
        Fact("connection", "through a pooler: nothing prepared, no hints" if link.pooled else "direct"),
        _durability(found, durability),
        Fact("schema", f"{schema}: {number:04d}_{name}", "" if current else "not current: run `perdure migrate`"),
        _rights(rights),
        _size(tables),
        _horizon(horizon),
        _age(age),
        _room(room),
    )


def _durability(found: Given, durability: str) -> Fact:
    value = f"{durability} (fsync {found.fsync}, synchronous_commit {found.synchronous_commit})"
    if durability == "quorum":
        value = f"{value[:-1]}, standbys {found.standbys})"
    return Fact("durability", value, "; ".join(problems(found, durability)))


def _rights(rows: list[tuple[Any, ...]]) -> Fact:
    missing = [f"{right} on {table}" for table, right in rows]
    return Fact("rights", "some are missing" if missing else "all that are needed", _lacks(missing))


def _lacks(missing: list[str]) -> str:
    return f"the role lacks {', '.join(missing)}: see the page on PostgreSQL" if missing else ""


def _size(rows: list[tuple[Any, ...]]) -> Fact:
    total = sum(size for _, size, _, _ in rows)
    bloated = [name for name, _, live, dead in rows if dead > MUCH_DEAD and dead > live]
    problem = f"more dead rows than live ones in {', '.join(bloated)}: is autovacuum held up?" if bloated else ""
    return Fact("size", f"{total:,} bytes", problem)


def _horizon(rows: list[tuple[Any, ...]]) -> Fact:
    ((seconds, who),) = rows
    problem = f"{who} keeps dead rows from being removed: end it" if seconds > _OLD_S else ""
    return Fact("oldest snapshot", f"{seconds:,} s", problem)


def _age(rows: list[tuple[Any, ...]]) -> Fact:
    ((xids, mxids, database),) = rows
    stops = f"above 2,100,000,000 the server takes no writes: find out why vacuum does not freeze database {database!r}"
    problem = stops if max(xids, mxids) > _OLD_XIDS else ""
    return Fact("transaction ids", f"age {xids:,}, of multixacts {mxids:,}, in {database}", problem)


def _room(rows: list[tuple[Any, ...]]) -> Fact:
    ((used, most),) = rows
    problem = "hardly any is left: a worker needs three" if most - used < _FEW_CONNECTIONS else ""
    return Fact("connections", f"{used} of {most}", problem)
