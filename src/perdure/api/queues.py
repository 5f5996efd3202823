"""Queues as users see them: what is set, what is in them, and what an operator can do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, Unpack

import msgspec

from perdure.api.acting import default_actor
from perdure.api.reading import moment
from perdure.errors import InvalidValue, UsageError
from perdure.kernel.definition import check_name
from perdure.model.duration import Duration
from perdure.model.queue import MOST, Queue, QueueRow, Rate
from perdure.model.write import Committed, Failed, SetQueue

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from perdure.model.filter import QueueState, StoreStats
    from perdure.runtime.connection import Connection


class QueueSettings(TypedDict, total=False):
    """What `QueueHandle.set` can change; None takes a limit away. Each as `Queue` has it."""

    concurrency: int | None
    concurrency_per_worker: int | None
    concurrency_per_key: int | None
    rate: Rate | None
    ageing: Duration | None
    fair: bool
    hold_while_waiting: bool


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a queue's settings.

    Attributes:
        n: 1, 2, 3, ... per queue.
        at: when.
        actor: who.
        reason: why.
        changed: setting, as it is stored, to its value before and after.
    """

    n: int
    at: datetime
    actor: str
    reason: str
    changed: dict[str, tuple[int | None, int | None]]


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: its settings, and what is in it.

    Attributes:
        name: name of the queue.
        concurrency: most runs at once, by all workers together.
        concurrency_per_worker: most runs at once in one worker.
        concurrency_per_key: most runs at once with one partition key.
        rate: most claims in a span of time.
        ageing: a waiting run gains a level of priority in each such span.
        fair: partition keys take turns.
        hold_while_waiting: a run that waits keeps its place in the limits.
        paused: nothing is claimed.
        due: runs that could be claimed now, were there no limits.
        later: runs that wait for a time to come: delayed, or asleep.
        running: runs that a worker has.
        slots: places taken in the limits of concurrency; 0 where there are none.
        starts: claims in the present window of the rate; 0 without a rate.
        oldest_due_at: since when the longest due run is due; None if none is.
        changes: the last changes of the settings, newest first.
    """

    name: str
    concurrency: int | None
    concurrency_per_worker: int | None
    concurrency_per_key: int | None
    rate: Rate | None
    ageing: timedelta | None
    fair: bool
    hold_while_waiting: bool
    paused: bool
    due: int
    later: int
    running: int
    slots: int
    starts: int
    oldest_due_at: datetime | None
    changes: tuple[QueueChange, ...]


class Owner(Protocol):
    """The engine, as far as a handle needs it."""

    @property
    def connection(self) -> Connection:
        """The open connection."""
        ...

    def queue_changed(self) -> None:
        """Look for runs to claim."""
        ...


class QueueHandle:
    """One queue, and what can be done to it.

    Attributes:
        name: name of the queue.
    """

    __slots__ = ("_engine", "name")

    def __init__(self, engine: Owner, name: str) -> None:
        self._engine = engine
        self.name: str = check_name(name, "a queue's name")

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    async def info(self) -> QueueInfo:
        """Return its settings and what is in it; a queue that nobody has used yet is empty and has no limits."""
        for info in await list_queues(self._engine.connection):
            if info.name == self.name:
                return info
        return _empty(self.name)

    async def set(
        self, *, actor: str | None = None, reason: str | None = None, **settings: Unpack[QueueSettings]
    ) -> None:
        """Change settings; from the return on every claim obeys. Those not given stay as they are.

        Args:
            actor: who acts; the system user by default. Recorded.
            reason: why. Recorded.
            **settings: settings of `Queue` by name; None takes a limit away.

        Raises:
            UsageError: there is no such setting, or none was given.
            InvalidValue: a value is out of range.
        """
        values = stored(self.name, dict(settings))
        if not values:
            message = "nothing to set"
            raise UsageError(message, hint=f"give one of {', '.join(_NAMES)}")
        await self._change(values, actor, reason)

    async def pause(self, *, actor: str | None = None, reason: str | None = None) -> None:
        """Claim nothing from it until it is resumed. Runs that a worker has go on; one that then waits stays waiting.

        Args:
            actor: who acts; the system user by default. Recorded.
            reason: why. Recorded.
        """
        await self._change({"paused": 1}, actor, reason)

    async def resume(self, *, actor: str | None = None, reason: str | None = None) -> None:
        """Let runs be claimed again.

        Args:
            actor: who acts; the system user by default. Recorded.
            reason: why. Recorded.
        """
        await self._change({"paused": 0}, actor, reason)

    async def _change(self, values: dict[str, int | None], actor: str | None, reason: str | None) -> None:
        await change(self._engine.connection, self.name, values, actor=actor, reason=reason)
        self._engine.queue_changed()


_NAMES = tuple(QueueSettings.__annotations__)


def stored(name: str, settings: Mapping[str, Any]) -> dict[str, int | None]:
    """Return settings as they are stored, of those given.

    Raises:
        UsageError: one is none of a queue's.
        InvalidValue: a value is out of range.
    """
    for setting in settings:
        if setting not in _NAMES:
            message = f"a queue has no setting {setting!r}; there are {', '.join(_NAMES)}"
            raise UsageError(message)
    whole = Queue(name, **settings).values()
    kept = set(settings) | ({"rate_limit", "rate_us"} if "rate" in settings else set())
    kept |= {"ageing_us"} if "ageing" in settings else set()
    return {setting: value for setting, value in whole.items() if setting in kept}


async def change(
    connection: Connection, name: str, values: Mapping[str, int | None], *, actor: str | None = None,
    reason: str | None = None, declared: bool = False,
) -> None:  # fmt: skip
    """Record a change of a queue's settings."""
    write = SetQueue(
        name, tuple(values.items()), connection.store.now(), actor or default_actor(), reason or "",
        connection.commit_ids.take(), declared,
    )  # fmt: skip
    outcome = await connection.write(write)
    if isinstance(outcome, Failed):
        raise outcome.error
    assert isinstance(outcome, Committed)  # noqa: S101 - a change is refused for its values only


async def declare(connection: Connection, queues: Iterable[Queue]) -> set[str]:
    """Write what the code says of queues to the database; return those that hand their runs out by themselves."""
    counted = set()
    for queue in queues:
        values = queue.values()
        if QueueRow(queue.name)._replace(**values).is_counted:  # type: ignore[arg-type]
            counted.add(queue.name)
        await change(connection, queue.name, values, reason="declared in the code", declared=True)
    return counted


async def list_queues(connection: Connection) -> tuple[QueueInfo, ...]:
    """Return every queue that has settings or open runs, by name."""
    stats: StoreStats = await connection.read(connection.store.stats)
    return tuple(_info(state) for state in stats.queues)


def _info(state: QueueState) -> QueueInfo:
    row = state.settings
    changes = tuple(
        QueueChange(
            n=one.n, at=moment(one.at), actor=one.actor, reason=one.reason,
            changed={name: (before, after) for name, (before, after) in msgspec.json.decode(one.change).items()},
        )
        for one in state.changes
    )  # fmt: skip
    return QueueInfo(
        name=row.name, concurrency=row.concurrency, concurrency_per_worker=row.concurrency_per_worker,
        concurrency_per_key=row.concurrency_per_key,
        rate=None if row.rate_limit is None else Rate(row.rate_limit, per=(row.rate_us or 0) / 1_000_000),
        ageing=None if row.ageing_us is None else timedelta(microseconds=row.ageing_us),
        fair=bool(row.fair), hold_while_waiting=bool(row.hold_while_waiting), paused=bool(row.paused),
        due=state.due, later=state.later, running=state.running, slots=state.slots, starts=state.starts,
        oldest_due_at=None if state.oldest_wake_at is None else moment(state.oldest_wake_at), changes=changes,
    )  # fmt: skip


def _empty(name: str) -> QueueInfo:
    return QueueInfo(
        name=name, concurrency=None, concurrency_per_worker=None, concurrency_per_key=None, rate=None, ageing=None,
        fair=False, hold_while_waiting=False, paused=False, due=0, later=0, running=0, slots=0, starts=0,
        oldest_due_at=None, changes=(),
    )  # fmt: skip


class Served(NamedTuple):
    """The queues an engine is given."""

    names: tuple[str, ...]
    weights: tuple[int, ...]
    declared: tuple[Queue, ...]


def served(queues: Iterable[str | Queue] | Mapping[str, int]) -> Served:
    """Return the queues to serve, with their weights, and those to declare.

    Raises:
        UsageError: not names, queues, or names with weights; or one of them twice.
    """
    if isinstance(queues, str | Queue):
        message = f"queues must be a list of names, not {'the text ' if isinstance(queues, str) else ''}{queues!r}"
        raise InvalidValue(message)
    weights: dict[str, int] = {}
    declared = []
    for item in queues:
        if isinstance(item, Queue):
            declared.append(item)
            name, weight = check_name(item.name, "a queue's name"), item.weight
        else:
            name = check_name(item, "a queue's name")
            weight = queues[item] if isinstance(queues, Mapping) else 1
        if type(weight) is not int or not 1 <= weight <= MOST:
            message = f"the weight of queue {name!r} must be a whole number from 1 to {MOST:,}, not {weight!r}"
            raise InvalidValue(message)
        if name in weights:
            message = f"queues has {name!r} twice"
            raise InvalidValue(message)
        weights[name] = weight
    if not weights:
        message = "queues must name at least one queue"
        raise InvalidValue(message)
    return Served(tuple(weights), tuple(weights.values()) if len(set(weights.values())) > 1 else (), tuple(declared))


class Routes:
    """Which queue a name belongs to: that of the first pattern that it matches.

    A run is put there unless its start says otherwise, and a step is executed there.
    """

    def __init__(self, routes: Mapping[str, str] | None) -> None:
        if routes is not None and not isinstance(routes, Mapping):
            message = f"routes must map patterns to queues, such as {{'media.*': 'slow'}}, not {routes!r}"
            raise InvalidValue(message)
        self._routes = [
            (check_name(pattern, "a pattern of routes"), check_name(queue, "a queue's name"))
            for pattern, queue in (routes or {}).items()
        ]

    @property
    def given(self) -> dict[str, str]:
        """Pattern to queue, in order."""
        return dict(self._routes)

    def queue_of(self, name: str) -> str | None:
        """Return the queue for a name; None if no pattern matches it."""
        for pattern, queue in self._routes:
            if fnmatchcase(name, pattern):
                return queue
        return None
