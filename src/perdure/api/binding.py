"""Which version a new run is bound to, as of what is known of versions when it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from perdure.errors import InvalidValue, UnknownVersion, VersionError
from perdure.kernel.definition import NO_VERSION, check_name
from perdure.model.code import UNBOUND
from perdure.version.route import DEFAULT_CHANNEL, bind

if TYPE_CHECKING:
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.runtime.connection import Connection
    from perdure.store.catalog.base import Shelf


class Wish(NamedTuple):
    """What a start says of versions.

    Attributes:
        version: label, beginning of a hash, or range; None for what the channel's route says.
        channel: name of a route.
        routing_key: what the run is routed by; None for its id.
    """

    version: str | None = None
    channel: str | None = None
    routing_key: str | None = None

    def check(self) -> None:
        """Raise `UsageError` for what can be no wish."""
        for value, what in (
            (self.version, "a version"), (self.channel, "a channel's name"), (self.routing_key, "a routing key")
        ):  # fmt: skip
            if value is not None:
                check_name(value, what)
        if self.version is not None and (self.channel or self.routing_key):
            message = "version, and channel or routing_key, exclude each other: a version is chosen, or routed to"
            raise InvalidValue(message)


NO_WISH: Final = Wish()


class Bound(NamedTuple):
    """The version of a new run.

    Attributes:
        version_id: the version; `UNBOUND` for none.
        label: what the run shows as its version.
        version_count: the count of changes of versions this was chosen at; None where it depends on none.
        facts: why it is this one, as the log has it; None where there is nothing to say.
    """

    version_id: int
    label: str
    version_count: int | None
    facts: bytes | None


class Asked:
    """What the database knew of a workflow's versions when it was last asked.

    Attributes:
        shelf: all of it.
        newest: the version of every run whose start says nothing of versions; None where a route leads it, or nobody
            has wanted it yet.
    """

    __slots__ = ("newest", "shelf")

    def __init__(self, shelf: Shelf) -> None:
        self.shelf: Shelf = shelf
        self.newest: Bound | None = None

    def choose(self, wish: Wish, run_id: str) -> Bound:
        """Return the version of a run; see `Binder.at_hand` for what it raises."""
        if wish is NO_WISH and self.newest is not None:
            return self.newest
        bound = _chosen(self.shelf, wish, run_id)
        if wish is NO_WISH and DEFAULT_CHANNEL not in self.shelf.routes:
            self.newest = bound
        return bound


class Binder:
    """Chooses versions by what the database knew when it was last asked; the store refuses what is out of date."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._definitions = connection.definitions

    def forget(self, workflow: str) -> None:
        """Ask anew the next time: something has changed."""
        self._definitions.forget(workflow)

    def at_hand(self, workflow: str, definition: WorkflowDefinition | None, wish: Wish, run_id: str) -> Bound | None:
        """Return the version of a run where that takes no question to the database, else None.

        Raises:
            UnknownVersion, VersionClosed, VersionPurged: the version asked for takes no new runs.
            InvalidValue: the version begins like a range and is none.
        """
        if definition is not None and definition.extent.unversioned:
            return _unversioned(definition, wish)
        asked: Asked | None = self._definitions.find(workflow)
        return None if asked is None else asked.choose(wish, run_id)

    async def bound(self, workflow: str, definition: WorkflowDefinition | None, wish: Wish, run_id: str) -> Bound:
        """Return the version of a run; see `at_hand` for what it raises."""
        found = self.at_hand(workflow, definition, wish, run_id)
        if found is None:
            connection = self._connection
            asked = Asked(await connection.read(connection.store.catalog.shelf, workflow))
            self._definitions.learn(workflow, asked)
            found = asked.choose(wish, run_id)
        return found


def _unversioned(definition: WorkflowDefinition, wish: Wish) -> Bound:
    if wish.version is not None and wish.version != definition.version:
        message = f"workflow {definition.name!r} is bound to no versions (unversioned=True); it has no {wish.version!r}"
        raise VersionError(message)
    return Bound(UNBOUND, definition.version, None, None)


def _chosen(shelf: Shelf, wish: Wish, run_id: str) -> Bound:
    channel = wish.channel or DEFAULT_CHANNEL
    route = shelf.routes.get(channel)
    if route is None and wish.channel not in (None, DEFAULT_CHANNEL):
        known = ", ".join(sorted(shelf.routes)) or "none"
        message = f"{shelf.known.workflow} has no channel {wish.channel!r}; there is: {known}"
        raise UnknownVersion(message)
    if wish.version is None and not shelf.known.versions:
        return Bound(UNBOUND, NO_VERSION, shelf.count, None)  # its first worker will tell
    key = wish.routing_key or run_id
    binding = bind(shelf.known, key=key, requested=wish.version, route=route)
    facts: dict[str, Any] = {"version": binding.label, "bound_by": binding.bound_by}
    if binding.revision is not None:
        facts |= {"channel": channel, "revision": binding.revision, "arm": binding.arm}
        if wish.routing_key is not None:
            facts["routing_key"] = key
    return Bound(binding.version_id, binding.label, shelf.count, msgspec.json.encode(facts))
