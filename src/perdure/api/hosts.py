"""`Engine.hosts`: the version hosts there are, and the environment they are given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from perdure.api.health import HostInfo, to_host
from perdure.api.version_acting import Why, why
from perdure.api.version_reading import found
from perdure.api.versions import Owner, name_of
from perdure.errors import InvalidValue

if TYPE_CHECKING:
    from perdure.store.base import Store

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Hosts:
    """Processes that run versions which nobody was deployed with."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Owner) -> None:
        self._engine = engine

    async def list(self) -> tuple[HostInfo, ...]:
        """Return the version hosts that are alive, on all machines."""
        connection = self._engine.connection
        rows: tuple[HostInfo, ...] = await connection.read(_hosts, connection.store)
        return rows

    async def environment(self, workflow: Any, version: str) -> dict[str, str]:
        """Return the variables that are set for the hosts of a version.

        Raises:
            UnknownVersion: there is no such version.
        """
        connection = self._engine.connection
        held: dict[str, str] = await connection.read(_environment, connection.store, name_of(workflow), version)
        return held

    async def set_environment(
        self, workflow: Any, version: str, variables: Mapping[str, str | None], *, reason: str, actor: str | None = None
    ) -> dict[str, str]:
        """Set variables for the hosts of a version that start from now on; return all that are set then.

        For what old code reads when it is imported, and the deployment no longer sets. They are kept in the database as
        they are given, so they are no place for secrets.

        Args:
            workflow: workflow or its name.
            version: the version.
            variables: name to value; None takes a variable away.
            reason: why. Recorded.
            actor: who acts; the system user by default. Recorded.

        Raises:
            InvalidValue: that is no name or value of a variable.
            UnknownVersion: there is no such version.
        """
        for name, value in variables.items():
            if not _NAME.fullmatch(name) or not (value is None or (isinstance(value, str) and "\0" not in value)):
                message = f"{name}={value!r} is no variable of an environment"
                raise InvalidValue(message)
        connection = self._engine.connection
        change = partial(_set, connection.store, name_of(workflow), version, dict(variables), why(actor, reason))
        held: dict[str, str] = await connection.read(change)
        return held


def _hosts(store: Store) -> tuple[HostInfo, ...]:
    workers = store.stats().workers
    return tuple(to_host(row) for row in workers if row.parent is not None and row.state == "live")


def _environment(store: Store, workflow: str, version: str) -> dict[str, str]:
    version_id = found(store, workflow, version).version.id
    stored = store.catalog.definition(version_id)
    hosted = None if stored is None else store.catalog.hosted(stored.release_id)
    return dict(hosted.environments.get(version_id, {})) if hosted is not None else {}


def _set(store: Store, workflow: str, version: str, variables: dict[str, str | None], by: Why) -> dict[str, str]:
    version_id = found(store, workflow, version).version.id
    merged: dict[str, str | None] = {**_environment(store, workflow, version), **variables}
    held = {name: value for name, value in sorted(merged.items()) if value is not None}
    store.catalog.note(
        workflow, version_id, "host_env_set", {"environment": held, "changed": sorted(variables)}, at=store.now(),
        actor=by.actor, reason=by.reason,
    )  # fmt: skip
    return held


class SyncHosts:
    """The version hosts, for code without an event loop; see `Hosts`."""

    __slots__ = ("_hosts", "_wait")

    def __init__(self, wait: Any, hosts: Hosts) -> None:
        self._wait = wait
        self._hosts = hosts

    def list(self) -> tuple[HostInfo, ...]:
        """Return the version hosts that are alive; see `Hosts.list`."""
        rows: tuple[HostInfo, ...] = self._wait(self._hosts.list())
        return rows

    def environment(self, workflow: Any, version: str) -> dict[str, str]:
        """Return the variables that are set for the hosts of a version; see `Hosts.environment`."""
        held: dict[str, str] = self._wait(self._hosts.environment(workflow, version))
        return held

    def set_environment(
        self, workflow: Any, version: str, variables: Mapping[str, str | None], *, reason: str, actor: str | None = None
    ) -> dict[str, str]:
        """Set variables for the hosts of a version; see `Hosts.set_environment`."""
        held: dict[str, str] = self._wait(
            self._hosts.set_environment(workflow, version, variables, reason=reason, actor=actor)
        )
        return held
