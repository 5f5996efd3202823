"""Starting runs through an open engine: where they are put, what version they are bound to, who executes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.api.binding import NO_WISH, Binder, Bound, Wish
from perdure.api.decorators import Workflow
from perdure.api.joining import Joining, split
from perdure.api.starting import check_existing, checked_id, found_by_key, prepare
from perdure.errors import UsageError
from perdure.kernel.definition import NO_VERSION
from perdure.model.code import UNBOUND
from perdure.model.write import Committed, Counted, Existing, Outdated
from perdure.runtime.connection import Answer, Ending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.api.many import Start
    from perdure.api.queues import Routes
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.write import Create, Outcome
    from perdure.runtime.connection import Connection
    from perdure.runtime.registry import WorkflowRegistry
    from perdure.runtime.waiters import End
    from perdure.runtime.worker import Worker

_TRIES: Final = 100
_ANY: Final = Bound(UNBOUND, NO_VERSION, None, None)


class Ended(NamedTuple):
    """A new run was recorded, and is at rest."""

    end: End | None
    """None: it left this process, or nobody knows."""


class Started:
    """What became of a start.

    Attributes:
        run_id: id of the run.
        is_new: whether this start recorded it.
        end: how it ended, if that was waited for and is known.
    """

    __slots__ = ("end", "is_new", "run_id")

    def __init__(self, run_id: str, *, is_new: bool = False, end: End | None = None) -> None:
        self.run_id: str = run_id
        self.is_new: bool = is_new
        self.end: End | None = end


class Call:
    """A start that names things which exist: its workflow, what it says of versions, and its other options."""

    __slots__ = ("arguments", "definition", "fresh", "name", "options", "run_id", "wish")

    def __init__(
        self, name: str, definition: WorkflowDefinition | None, arguments: tuple[tuple[Any, ...], dict[str, Any]],
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.name: str = name
        self.definition: WorkflowDefinition | None = definition
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] = arguments
        run_id = options.pop("id", None)
        self.fresh: bool = run_id is None
        self.run_id: str = checked_id(run_id)
        take = options.pop
        version, channel, routing_key = take("version", None), take("channel", None), take("routing_key", None)
        self.wish: Wish = NO_WISH
        if not (version is channel is routing_key is None):
            self.wish = Wish(version, channel, routing_key)
            self.wish.check()
        self.options: dict[str, Any] = options


class Starts:
    """The starts of one open engine.

    Args:
        connection: the database.
        worker: the engine's own worker; None for a client.
        workflows: the workflows it knows.
        routes: where runs are put that name no queue.
        served: queues of the worker.
        counted: queues that hand their runs out by themselves: none of theirs is claimed as it is created.
        admit: called with a workflow that the engine was not given when it opened.
    """

    def __init__(
        self, connection: Connection, worker: Worker | None, workflows: WorkflowRegistry, routes: Routes,
        served: tuple[str, ...], counted: set[str], admit: Callable[[WorkflowDefinition], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._admit = admit
        self.binder: Binder = Binder(connection)
        self._connection = connection
        self._worker = worker
        self._workflows = workflows
        self._routes = routes
        self._served = served
        self._counted = counted

    async def start(
        self, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any], *,
        until_end: bool = False,
    ) -> Started:  # fmt: skip
        """Record a run; see `Engine.start`. With ``until_end`` also wait until it has ended, if it is a new one."""
        call = self._call(workflow, args, kwargs, options)
        await self._make_known(call)
        for _ in range(_TRIES):
            bound = self.binder.at_hand(call.name, call.definition, call.wish, call.run_id)
            if bound is None:
                bound = await self.binder.bound(call.name, call.definition, call.wish, call.run_id)
            create, outcome = await self._record(call, bound, until_end=until_end)
            if not isinstance(outcome, Outdated):
                return await self._answer(call, create, outcome)
            self.binder.forget(call.name)
        message = f"versions of {call.name} change too fast for a run to be started"
        raise UsageError(message, hint="try again")

    async def _record(self, call: Call, bound: Bound, *, until_end: bool) -> tuple[Create, Outcome | Ended]:
        loop, connection, writer = asyncio.get_running_loop(), self._connection, self._connection.writer
        own = self._owner(call, bound)
        while True:
            create = self._prepared(call, bound, own)
            ending = Ending(loop, connection.waiters, self._recorded) if until_end else None
            answer = ending or Answer(loop)
            if own is not None and create.row.owner is not None:
                own.create(create, answer)
            else:
                if writer.is_full:
                    await writer.room()
                writer.submit(create, answer)
            try:
                outcome = await connection.answered(answer.future)
            finally:
                if ending is not None:
                    ending.give_up(create.row.id)
            if ending is not None and ending.is_recorded:
                return create, Ended(outcome)
            if not isinstance(outcome, Counted):
                return create, outcome
            self._counted.add(create.row.queue)  # nothing is recorded: its queue hands its runs out by itself
            own = None

    def _owner(self, call: Call, bound: Bound) -> Worker | None:
        """Return the worker that a run is claimed for as it is created."""
        worker, queue = self._worker, call.options["queue"]
        if worker is None or queue not in self._served or queue in self._counted:
            return None
        return worker if worker.has_room and worker.carries(call.name, bound.version_id) else None

    def _recorded(self, create: Create) -> None:
        if self._worker is not None and create.row.owner is None:
            self._worker.want_claim()

    async def _answer(self, call: Call, create: Create, outcome: Outcome | Ended) -> Started:
        if isinstance(outcome, Committed):
            self._recorded(create)
            return Started(create.row.id, is_new=True)
        if isinstance(outcome, Ended):
            return Started(create.row.id, is_new=True, end=outcome.end)
        if isinstance(outcome, Existing) and (holder := found_by_key(create, outcome)) is not None:
            return Started(holder)
        await check_existing(self._connection, create, outcome, call.definition)
        return Started(create.row.id)

    def check(self, start: Start) -> None:
        """Raise what a start would raise before it asks the database."""
        self._prepared(self._call(start.workflow, start.args, start.kwargs, dict(start.options)), _ANY, None)

    async def joining(
        self, workflow: Any, args: tuple[Any, ...], options: dict[str, Any], *, anew: bool = False
    ) -> Joining:
        """Check a start that is recorded in a transaction of the caller's; ask ``anew`` what versions there are."""
        chosen, arguments = split(options)
        call = self._call(workflow, args, arguments, chosen)
        await self._make_known(call)
        if anew:
            self.binder.forget(call.name)
        bound = await self.binder.bound(call.name, call.definition, call.wish, call.run_id)
        return Joining(self._prepared(call, bound, None), call.definition)

    def _prepared(self, call: Call, bound: Bound, own: Worker | None) -> Create:
        args, kwargs = call.arguments
        return prepare(
            self._connection, call.definition or call.name, args, kwargs, bound=bound, run_id=call.run_id,
            fresh=call.fresh, claim_for=own, **call.options,
        )  # fmt: skip

    def _call(self, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Call:
        name, definition = self._resolve(workflow)
        if options.get("queue") is None:
            options["queue"] = self._routes.queue_of(name) or "default"
        return Call(name, definition, (args, kwargs), options)

    async def _make_known(self, call: Call) -> None:
        definition = call.definition
        if definition is not None and call.name not in self._workflows:
            await self._admit(definition)
            self._workflows.admit(definition)

    def _resolve(self, workflow: Any) -> tuple[str, WorkflowDefinition | None]:
        if isinstance(workflow, Workflow):
            definition = workflow.definition
            known = self._workflows.get(definition.name)
            if known is None:
                definition.check_registrable()
            elif known is not definition:
                message = f"another workflow is registered under the name {definition.name!r}"
                raise UsageError(message)
            return definition.name, definition
        if not isinstance(workflow, str) or not workflow:
            message = f"start() takes a workflow or its name, not {workflow!r}"
            raise UsageError(message, hint="decorate the function with @perdure.workflow")
        found = self._workflows.get(workflow)
        if found is None and self._workflows:
            known_names = ", ".join(sorted(self._workflows))
            message = f"no workflow is named {workflow!r} here; there are: {known_names}"
            raise UsageError(message)
        return workflow, found
