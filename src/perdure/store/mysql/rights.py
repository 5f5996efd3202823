"""Which rights a worker's user lacks: the server is asked to explain a statement of each kind on each table.

What `show grants` says is not what a user may do: roles, patterns of names and rights to single columns are beside it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pymysql.err import Error  # not by way of the package: Django puts copies there

from perdure.model.filter import Fact
from perdure.store.mysql.fault import LACKING, number_of
from perdure.store.mysql.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.store.mysql.link import MysqlLink

_PROBES = {
    "SELECT": "explain select 1 from {}",
    "INSERT": "explain insert into {} () values ()",
    "UPDATE": "explain update {} set no_such_column = 1",
    "DELETE": "explain delete from {} where 1 = 0",
}
"""Whether the right is there is looked at first; what else is wrong with a statement does not matter."""
_ADDED_TO = (
    "release_tree", "version_label", "version_signature", "definition_alias", "version_change", "route", "request",
    "queue_change",
)  # fmt: skip
_NEVER = {
    ("event", "UPDATE"), ("definition_version", "DELETE"), ("definition_blob", "UPDATE"),
    *((table, right) for table in _ADDED_TO for right in ("UPDATE", "DELETE")),
    *(("schema_migration", right) for right in ("INSERT", "UPDATE", "DELETE")),
}  # fmt: skip
"""What nobody does who only works: some tables are never changed, only added to."""


def rights(link: MysqlLink, *, writable: bool) -> Fact:
    """Return what the user lacks of what a worker needs. A server that is not writable does not say."""
    found: Any = link.execute("rights").rows
    (database,) = link.execute("database").rows[0]
    grants = [text for (text,) in found]
    if _has_all(grants, "*.*"):
        return Fact("rights", "on all databases of the server")
    if _has_all(grants, f"{database}.*"):
        return Fact("rights", "all that are needed")
    if not writable:
        return Fact("rights", "not known: the server takes no writes")
    missing = _missing(link)
    return Fact("rights", "some are missing" if missing else "all that are needed", _lacks(missing))


def _has_all(grants: Sequence[str], place: str) -> bool:
    """Whether one grant gives all that is needed. Where none does the server is asked: this saves many questions."""
    for text in grants:
        found = re.match(r"GRANT (.+?) ON (\S+) TO ", text)
        if found is not None and re.sub(r"[`\\]", "", found[2]) == place:
            given = set(found[1].split(", "))
            if given >= _PROBES.keys() or "ALL PRIVILEGES" in given:
                return True
    return False


def _missing(link: MysqlLink) -> list[str]:
    found: list[str] = []
    for right, probe in _PROBES.items():
        wanted = [table for table in TABLES if (table, right) not in _NEVER]
        lacking = [table for table in wanted if _is_refused(link, probe.format(table))]
        found += [right] if lacking == wanted else [f"{right} on {table}" for table in lacking]
    return found


def _is_refused(link: MysqlLink, statement: str) -> bool:
    try:
        link.query(statement, ())
    except Error as error:
        return number_of(error) in LACKING
    return False


def _lacks(missing: list[str]) -> str:
    return f"the user lacks {', '.join(missing)}: see the page on MySQL and MariaDB" if missing else ""
