"""One statement for a listing, of the named parts that every SQL backend has."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from perdure.model.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perdure.model.filter import RunFilter

Array = TypeVar("Array")
_STATUSES = tuple(status.value for status in Status)


def statement(
    sql: Mapping[str, str], query: RunFilter, array: Callable[[tuple[str, ...]], Array]
) -> tuple[str, list[str | int | Array]] | None:
    """Return the statement for the runs that match, newest first, and its values; None if none can match.

    By tag if there is one. Otherwise state by state, each from the end of its part of the index: then the cost is that
    of the rows looked at, not of the table.

    Args:
        sql: the backend's named statements.
        query: what is asked for.
        array: makes one value of many, as the backend takes them.
    """
    statuses = [status for status in _STATUSES if not query.statuses or status in query.statuses]
    if query.limit < 1 or not statuses:
        return None
    where, values = _conditions(sql, query, array)
    given: list[str | int | Array] = []
    if query.tags:
        tag, *others = query.tags
        parts = [sql["by_tag"], where, *[sql["and_tag"]] * len(others)]
        given += [*tag, *values, *(value for other in others for value in other)]
        if query.statuses:
            parts.append(sql["and_status"])
            given.append(array(query.statuses))
        text = " ".join(parts)
    else:
        part = f"select * from ({sql['by_status']} {where} {sql['newest']}) as s"  # noqa: S608 - named parts only
        text = " union all ".join([part] * len(statuses))
        for status in statuses:
            given += [status, *values, query.limit]
    return f"{text} {sql['newest']}", [*given, query.limit]


def _conditions(
    sql: Mapping[str, str], query: RunFilter, array: Callable[[tuple[str, ...]], Array]
) -> tuple[str, list[str | int | Array]]:
    parts = []
    values: list[str | int | Array] = []
    for name, value in (
        ("and_workflow", query.workflow),
        ("and_version", query.version),
        ("and_queue", query.queue),
        ("and_since", query.since),
        ("and_until", query.until),
    ):
        if value is not None:
            parts.append(sql[name])
            values.append(value)
    if query.version_ids:
        parts.append(sql["and_version_ids"])
        values.append(array(tuple(map(str, query.version_ids))))
    if query.before is not None:
        parts.append(sql["and_before"])
        values += query.before
    return " ".join(parts), values
