"""Starting runs through an open engine: where they are put, what version they are bound to, who executes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.api.binding import NO_WISH, Binder, Bound, Wish
from perdure.api.decorators import Workflow
from perdure.api.joining import Joining, split
from perdure.api.starting import check_existing, checked_id, found_by_key, prepare
from perdure.errors import UsageError
from perdure.kernel.definition import NO_VERSION
from perdure.model.code import UNBOUND
from perdure.model.write import Committed, Counted, Existing, Outdated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.api.many import Start
    from perdure.api.queues import Routes
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.write import Create, Outcome
    from perdure.runtime.connection import Connection
    from perdure.runtime.registry import WorkflowRegistry
    from perdure.runtime.worker import Worker

_TRIES: Final = 100
_ANY: Final = Bound(UNBOUND, NO_VERSION, None, None)


class Started:
    """What became of a start: the id of the run, and whether this start recorded it."""

    __slots__ = ("is_new", "run_id")

    def __init__(self, run_id: str, *, is_new: bool = False) -> None:
        self.run_id: str = run_id
        self.is_new: bool = is_new


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
        self, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> Started:
        """Record a run; see `Engine.start`."""
        call = self._call(workflow, args, kwargs, options)
        await self._make_known(call)
        for _ in range(_TRIES):
            bound = self.binder.at_hand(call.name, call.definition, call.wish, call.run_id)
            if bound is None:
                bound = await self.binder.bound(call.name, call.definition, call.wish, call.run_id)
            create, outcome = await self._record(call, bound)
            if not isinstance(outcome, Outdated):
                return await self._answer(call, create, outcome)
            self.binder.forget(call.name)
        message = f"versions of {call.name} change too fast for a run to be started"
        raise UsageError(message, hint="try again")

    async def _record(self, call: Call, bound: Bound) -> tuple[Create, Outcome]:
        connection, worker = self._connection, self._worker
        queue = call.options["queue"]
        own = worker if queue in self._served and queue not in self._counted else None
        if own is not None and not (own.has_room and own.carries(call.name, bound.version_id)):
            own = None
        create = self._prepared(call, bound, own)
        if own is None or create.row.owner is None:
            return create, await connection.write(create)
        outcome = await connection.answered(own.create(create))
        if isinstance(outcome, Counted):  # nothing is recorded: its queue hands its runs out by itself
            self._counted.add(queue)
            create = self._prepared(call, bound, None)
            outcome = await connection.write(create)
        return create, outcome

    async def _answer(self, call: Call, create: Create, outcome: Outcome) -> Started:
        if isinstance(outcome, Committed):
            if self._worker is not None and create.row.owner is None:
                self._worker.want_claim()
            return Started(create.row.id, is_new=True)
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
            known = self._workflows.get(workflow.name)
            if known is None:
                workflow.definition.check_registrable()
            elif known is not workflow.definition:
                message = f"another workflow is registered under the name {workflow.name!r}"
                raise UsageError(message)
            return workflow.name, workflow.definition
        if not isinstance(workflow, str) or not workflow:
            message = f"start() takes a workflow or its name, not {workflow!r}"
            raise UsageError(message, hint="decorate the function with @perdure.workflow")
        definition = self._workflows.get(workflow)
        if definition is None and self._workflows:
            known_names = ", ".join(sorted(self._workflows))
            message = f"no workflow is named {workflow!r} here; there are: {known_names}"
            raise UsageError(message)
        return workflow, definition
