"""Starting a run inside the caller's own transaction: it exists if the caller commits, and else never did."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from perdure.api.starting import check_existing, prepare
from perdure.guard.joint import creating, tables_of
from perdure.guard.link import link, run, run_async
from perdure.model.write import Existing

if TYPE_CHECKING:
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.run import RunRow, Tombstone
    from perdure.model.write import Create
    from perdure.runtime.connection import Connection


class Joining(NamedTuple):
    """A start that is checked and not yet recorded."""

    create: Create
    definition: WorkflowDefinition | None


def join(
    own: Connection, name: str, definition: WorkflowDefinition | None, args: tuple[Any, ...], options: dict[str, Any]
) -> Joining:
    """Check a start: its options, and what of ``options`` are arguments of the workflow.

    Raises:
        UsageError: an option has a wrong value.
        CodecError: an argument cannot be stored.
    """
    start: dict[str, Any] = {"id": None, "queue": "default", "priority": 0}
    start |= dict.fromkeys(("delay", "version", "timeout", "tags"))
    start |= {option: value for option, value in options.items() if option in start}
    arguments = {name: value for name, value in options.items() if name not in start}
    return Joining(prepare(own, name, definition, args, arguments, claim_for=None, **start), definition)


def record(transaction: Any, own: Connection, joining: Joining) -> RunRow | Tombstone | None:
    """Record a run over a blocking connection; return what has its id already."""
    over = link(transaction, is_async=False)
    tables = tables_of(own.store.capabilities, over.dialect)
    over.check()
    return run(over, creating(tables, joining.create))


async def record_async(transaction: Any, own: Connection, joining: Joining) -> RunRow | Tombstone | None:
    """Record a run over an async connection; return what has its id already."""
    over = link(transaction, is_async=True)
    tables = tables_of(own.store.capabilities, over.dialect)
    await cast("Awaitable[None]", over.check())
    return await run_async(over, creating(tables, joining.create))


async def check(own: Connection, joining: Joining, found: RunRow | Tombstone | None) -> None:
    """Accept what has the id if it is the same start.

    Raises:
        IdConflict: it is another one.
    """
    if found is not None:
        await check_existing(own, joining.create, Existing(found), joining.definition)
