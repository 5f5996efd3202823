"""Starting a run inside the caller's own transaction: it exists if the caller commits, and else never did."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from perdure.api.starting import check_existing, found_by_key
from perdure.guard.joint import creating, tables_of
from perdure.guard.link import link, run, run_async
from perdure.model.write import Existing, Outdated

if TYPE_CHECKING:
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.run import RunRow, Tombstone
    from perdure.model.write import Create
    from perdure.runtime.connection import Connection

_OPTIONS = {
    "id", "queue", "priority", "delay", "version", "channel", "routing_key", "timeout", "tags", "partition_key",
    "deduplication_key",
}  # fmt: skip


class Joining(NamedTuple):
    """A start that is checked and not yet recorded."""

    create: Create
    definition: WorkflowDefinition | None


def split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what of a start's named arguments are options, and what are arguments of the workflow."""
    chosen = {name: value for name, value in options.items() if name in _OPTIONS}
    return chosen, {name: value for name, value in options.items() if name not in _OPTIONS}


def record(transaction: Any, own: Connection, joining: Joining) -> RunRow | Tombstone | Outdated | None:
    """Record a run over a blocking connection; return what stands in the way: see `perdure.guard.joint.creating`."""
    over = link(transaction, is_async=False)
    tables = tables_of(own.store.capabilities, over.dialect)
    over.check()
    return run(over, creating(tables, joining.create))


async def record_async(transaction: Any, own: Connection, joining: Joining) -> RunRow | Tombstone | Outdated | None:
    """Record a run over an async connection; return what stands in the way: see `perdure.guard.joint.creating`."""
    over = link(transaction, is_async=True)
    tables = tables_of(own.store.capabilities, over.dialect)
    await cast("Awaitable[None]", over.check())
    return await run_async(over, creating(tables, joining.create))


async def run_id(own: Connection, joining: Joining, found: RunRow | Tombstone | None) -> str:
    """Return the id of the run: the new one, or the one that has the deduplication key, or the same start's.

    Raises:
        IdConflict: another start has the id.
    """
    create = joining.create
    if found is None:
        return create.row.id
    if (holder := found_by_key(create, Existing(found))) is not None:
        return holder
    await check_existing(own, create, Existing(found), joining.definition)
    return create.row.id
