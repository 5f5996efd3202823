"""`Upgrades`: runs are bound to another version by a plan that names each of them, and by nothing else."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from perdure.api.acting import default_actor
from perdure.api.planning import Selector, select
from perdure.api.reading import moment
from perdure.api.rebinding import Rebinding, Terms, take_back
from perdure.api.upgrading import Recast
from perdure.errors import InvalidValue, PerdureError, UpgradeBusy, UpgradeRefused, UsageError
from perdure.model.duration import microseconds
from perdure.replay.verdict import Verdict
from perdure.store.catalog.plans import ItemRow, PlanRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perdure.api.checking import Target
    from perdure.api.operations import Operations
    from perdure.model.duration import Duration
    from perdure.store.upgrade import UpgradeRow

ACCEPTED: Final = ("args-differ",)
State = Literal["planned", "applied", "reverted"]
Outcome = Literal["applied", "done", "busy", "refused", "failed"]
_OUTCOMES: Final[dict[str, Outcome]] = {UpgradeBusy.code: "busy", UpgradeRefused.code: "refused"}


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a plan.

    Attributes:
        run_id: id of the run.
        from_version_id: number of the version it was bound to.
        epoch: its epoch at the check.
        events: length of its log at the check.
        verdict: what the check found.
        state: what became of it since: ``planned``, ``applied`` or ``reverted``.
    """

    run_id: str
    from_version_id: int
    epoch: int
    events: int
    verdict: Verdict
    state: State = "planned"


class UpgradePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that may be bound to another version, each with what the check of its history found.

    Attributes:
        id: by which it is applied.
        workflow: name of the workflow.
        to: label of the version they would be bound to.
        to_version_id: its number.
        selector: how the runs were chosen.
        actor: who made the plan.
        created_at: when.
        runs: the runs.
    """

    id: str
    workflow: str
    to: str
    to_version_id: int
    selector: dict[str, Any]
    actor: str
    created_at: datetime
    runs: tuple[PlannedRun, ...]


class UpgradeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run. ``str()`` of it is one line.

    Attributes:
        run_id: id of the run.
        outcome: ``applied``; ``done`` by this plan before; ``busy``; ``refused`` for what its check found; ``failed``.
        text: what happened, one line.
        verdict: what the last check found; None where there was no need for one.
        error: why it was not applied; `UpgradeStale` where it was checked again.
    """

    run_id: str
    outcome: Outcome
    text: str
    verdict: Verdict | None = None
    error: PerdureError | None = None

    def __str__(self) -> str:
        return f"{self.run_id}: {self.outcome}: {self.text}"


class Upgrades:
    """See the module. Made by `perdure.Engine.upgrades`."""

    def __init__(self, engine: Operations) -> None:
        self._engine = engine

    async def plan(
        self, *, to: str, ids: Iterable[str] | None = None, workflow: Any = None, from_version: str | None = None,
        status: str | Iterable[str] | None = None, limit: int = 1000, actor: str | None = None,
    ) -> UpgradePlan:  # fmt: skip
        """Choose runs, check the history of each against a version, and keep what was found. Changes no run.

        Args:
            to: the version: a label, the beginning of a hash, or a range.
            ids: the runs; or else
            workflow: runs of this workflow, or of this name,
            from_version: that are bound to this version,
            status: and are in this state, or one of these; by default all that have not ended.
            limit: at most so many of them, the newest.
            actor: who makes the plan; the system's user by default.

        Raises:
            UsageError: neither ids nor workflow and source version; or a run that cannot be upgraded.
            RunNotFound: there is no such run.
            UnknownVersion, VersionClosed, VersionPurged: the version takes no runs.
            VersionLoadFailed: the version cannot be loaded.
        """
        selector = Selector.of(ids, workflow, from_version, status, limit)
        connection, checker = self._engine.connection, self._engine.checker
        target, chosen = await select(connection, checker, selector, to)
        plan = PlanRow(
            secrets.token_hex(4), target.workflow, target.version_id, target.label, selector.text,
            actor or default_actor(), connection.store.now(),
        )  # fmt: skip
        rebinding = Rebinding(self._engine, target, Terms(plan_id=plan.id, actor=plan.actor))
        items = []
        for n, run_id in enumerate(chosen):
            row, events, verdict = await rebinding.looked_at(run_id)
            text = msgspec.json.encode(verdict).decode()
            items.append(ItemRow(plan.id, n, run_id, row.version_id, row.epoch, len(events), text))
        await connection.read(connection.store.catalog.add_plan, plan, items)
        return _plan(plan, items, [])

    async def status(self, plan: UpgradePlan | str) -> UpgradePlan:
        """Return a plan as it stands now.

        Raises:
            UsageError: there is no such plan.
        """
        connection = self._engine.connection
        plan_id = plan if isinstance(plan, str) else plan.id
        found = await connection.read(connection.store.catalog.plan, plan_id)
        if found is None:
            message = f"there is no plan {plan_id!r}"
            raise UsageError(message, hint="perdure upgrade plan makes one")
        done = await connection.read(connection.store.catalog.upgrades_by, plan_id)
        return _plan(found[0], found[1], done)

    async def apply(
        self, plan: UpgradePlan | str, *, reason: str, actor: str | None = None, accept: Iterable[str] = (),
        map: Mapping[str, str] | None = None, from_step: str | int | None = None, force: Iterable[str] = (),
        wait: Duration = "10s",
    ) -> list[UpgradeResult]:  # fmt: skip
        """Bind the runs of a plan to its version, one by one. What becomes of one changes nothing for the others.

        Taken are those whose check found nothing. A run that has moved on since is checked again. One that is running
        is asked to stop between two steps, and waited for. Done twice it does nothing more.

        Args:
            plan: the plan, or its id.
            reason: why; it is recorded with each run.
            actor: who does it; the system's user by default.
            accept: what else is taken: ``"args-differ"`` for steps that would be called with other arguments.
            map: recorded name of a step to the name the version calls it by. Every later replay reads it so.
            from_step: id of the operation from which on what is recorded is dropped, so that it is done again.
            force: ids of runs that are taken whatever their check finds.
            wait: how long to wait for a run that is inside a step.

        Raises:
            UsageError: there is no such plan, it lacks a run that is forced, or an option has a wrong value.
            UnknownVersion, VersionClosed, VersionPurged: the version takes no runs any more.
            VersionLoadFailed: the version cannot be loaded.
        """
        given = await self.status(plan)
        terms = _terms(given, reason, actor, accept, Recast(dict(map or {}), _op(from_step)), force, wait)
        connection, checker = self._engine.connection, self._engine.checker
        target: Target = await checker.target_of(connection, given.workflow, given.to_version_id)
        rebinding = Rebinding(self._engine, target, terms)
        results = [await _applied(rebinding, run) for run in given.runs]
        applied = sum(result.outcome == "applied" for result in results)
        if applied:
            await rebinding.note(applied)
        return results

    async def revert(
        self, run_id: str, *, reason: str, actor: str | None = None, wait: Duration = "10s"
    ) -> UpgradeResult:  # fmt: skip
        """Bind a run to the version it came from, while it has recorded nothing on the other.

        After that a new plan is needed, which is checked the other way. A failed run that was upgraded stays retried.

        Raises:
            RunNotFound: there is no such run.
            UsageError: it was never upgraded, or has ended.
            UpgradeRefused: it has recorded something since.
            UpgradeBusy: it is inside a step.
            VersionPurged: the code it came from is gone.
        """
        seconds = microseconds(wait, "wait") / 1_000_000
        text = await take_back(self._engine, run_id, _text(reason), actor or default_actor(), seconds)
        return UpgradeResult(run_id=run_id, outcome="applied", text=text)


async def _applied(rebinding: Rebinding, run: PlannedRun) -> UpgradeResult:
    if run.state != "planned":
        text = "done by this plan before" if run.state == "applied" else "reverted since; make a new plan"
        return UpgradeResult(run_id=run.run_id, outcome="done", text=text)
    try:
        done = await rebinding.apply(run.run_id, run.from_version_id, (run.epoch, run.events), run.verdict)
    except PerdureError as error:
        outcome = _OUTCOMES.get(error.code, "failed")
        verdict = getattr(error, "verdict", None)
        return UpgradeResult(run_id=run.run_id, outcome=outcome, text=str(error), verdict=verdict, error=error)
    return UpgradeResult(
        run_id=run.run_id, outcome="applied", text=done.text, verdict=done.verdict, error=done.stale
    )  # fmt: skip


def _terms(
    plan: UpgradePlan, reason: str, actor: str | None, accept: Iterable[str], recast: Recast, force: Iterable[str],
    wait: Duration,
) -> Terms:  # fmt: skip
    accepted, forced = frozenset(accept), frozenset([force] if isinstance(force, str) else force)
    for each in sorted(accepted - set(ACCEPTED)):
        message = f"accept must be of {', '.join(ACCEPTED)}, not {each!r}"
        raise InvalidValue(message)
    unknown = sorted(forced - {run.run_id for run in plan.runs})
    if unknown:
        message = f"plan {plan.id} has no run {unknown[0]!r}, so it cannot be forced"
        raise UsageError(message)
    return Terms(
        plan_id=plan.id, actor=actor or default_actor(), reason=_text(reason), accepts_args=bool(accepted),
        recast=recast, forced=forced, wait_s=microseconds(wait, "wait") / 1_000_000,
    )  # fmt: skip


def _text(reason: str) -> str:
    if not isinstance(reason, str) or not reason.strip():
        message = "an upgrade needs a reason"
        raise InvalidValue(message)
    return reason


def _op(from_step: str | int | None) -> str | None:
    return None if from_step is None else str(from_step)


def _plan(plan: PlanRow, items: list[ItemRow], done: list[UpgradeRow]) -> UpgradePlan:
    last = {row.run_id: row.to_version for row in done}

    def state(run_id: str) -> State:
        bound = last.get(run_id)
        return "planned" if bound is None else "applied" if bound == plan.to_version else "reverted"

    runs = tuple(
        PlannedRun(
            run_id=item.run_id, from_version_id=item.from_version, epoch=item.epoch, events=item.events,
            verdict=msgspec.json.decode(item.verdict, type=Verdict), state=state(item.run_id),
        )
        for item in items
    )  # fmt: skip
    return UpgradePlan(
        id=plan.id, workflow=plan.workflow, to=plan.label, to_version_id=plan.to_version,
        selector=msgspec.json.decode(plan.selector), actor=plan.actor, created_at=moment(plan.at), runs=runs,
    )  # fmt: skip
