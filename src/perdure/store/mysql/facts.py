"""What this server really is: settings given, rights, sizes, age; and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymysql.err import Error  # not by way of the package: Django puts copies there

from perdure.model.filter import Fact
from perdure.store.migrate import migrations
from perdure.store.mysql.rights import rights
from perdure.store.mysql.schema import TABLES, given, problems, server_of

if TYPE_CHECKING:
    from perdure.store.mysql.link import MysqlLink

_OLD_S = 600
LONG_HISTORY = 1_000_000
"""So many transactions whose old versions of rows are kept. The purge follows within thousands, so at a million it is
held up or too slow, and whoever comes across these versions steps over each."""
_LITTLE_PACKET = 4 << 20


def facts(link: MysqlLink, durability: str) -> tuple[Fact, ...]:
    """Return what there is to know."""
    found = given(link)
    kind, _ = server_of(found)
    number, name, _ = link.execute("migrations").rows[-1]
    current = int(number) >= len(migrations("mysql"))
    packet = int(found["max_allowed_packet"])
    return (
        Fact(kind.lower(), found["version"]),
        Fact("durability", durability, "; ".join(problems(found, durability))),
        Fact("schema", f"{number:04d}_{name}", "" if current else "not current: run `perdure migrate`"),
        Fact(
            "largest value",
            f"{packet:,} bytes (max_allowed_packet)",
            "" if packet >= _LITTLE_PACKET else "values of steps beyond it are refused",
        ),
        _connections(link, found),
        rights(link, writable=found["read_only"] == "OFF"),
        *_sizes(link),
        *_age(link),
    )


def _connections(link: MysqlLink, found: dict[str, str]) -> Fact:
    rows: Any = link.execute("status_of_server", ("Threads_connected",)).rows
    used, most = int(rows[0][1]), int(found["max_connections"])
    return Fact("connections", f"{used} of {most}", "nearly all are in use" if used > most * 0.9 else "")


def _sizes(link: MysqlLink) -> tuple[Fact, ...]:
    rows: Any = link.execute("sizes", TABLES).rows
    sizes = {name: (int(data or 0), int(index or 0), int(free or 0)) for name, data, index, free in rows}
    return tuple(
        Fact(f"table {name}", f"{sizes[name][0]:,} bytes, indexes {sizes[name][1]:,}, free {sizes[name][2]:,}")
        for name in ("run", "event")
        if name in sizes
    )


def _age(link: MysqlLink) -> tuple[Fact, ...]:
    """Return how much old versions of rows pile up behind an open transaction, where the user may know."""
    try:
        row: Any = link.execute("oldest").rows[0]
    except Error:
        return (Fact("oldest transaction", "not known: it needs the right PROCESS"),)
    oldest, history = int(row[0] or 0), int(row[1] or 0)
    return (
        Fact(
            "oldest transaction",
            f"{oldest} s",
            "it keeps old versions of rows, and claims become slow: find it in information_schema.innodb_trx"
            if oldest > _OLD_S
            else "",
        ),
        Fact("undo history", f"{history:,}", "the server's purge cannot keep up" if history > LONG_HISTORY else ""),
    )
