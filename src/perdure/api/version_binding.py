"""Why a run has the version it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.api.reading import decode_log, row_and_log
from perdure.api.version_info import BindingInfo, OperationVersion
from perdure.model.code import UNBOUND
from perdure.version.origin import origin_of

if TYPE_CHECKING:
    from perdure.runtime.connection import Connection
    from perdure.store.catalog.base import Shelf


async def binding_of(connection: Connection, run_id: str) -> BindingInfo:
    """Return the version a run is bound to, and why. Raises `RunNotFound`."""
    row, events = await row_and_log(connection, run_id)
    shelf: Shelf = await connection.read(connection.store.catalog.shelf, row.workflow)
    version = shelf.known.versions.get(row.version_id)
    is_bound = row.version_id != UNBOUND
    operations = tuple(
        OperationVersion(
            seq=event.seq, type=event.type, op=event.op, kind=event.kind, name=event.name, label=event.version
        )
        for event in decode_log(events, row.workflow_version, connection.codec)
        if event.op is not None
    )
    return BindingInfo(
        run_id=row.id, workflow=row.workflow, label=row.workflow_version if is_bound else "",
        sha256=None if version is None else version.sha256, status=None if version is None else version.status,
        operations=operations, **(origin_of(events)._asdict() if is_bound else {"bound_by": None}),
    )  # fmt: skip
