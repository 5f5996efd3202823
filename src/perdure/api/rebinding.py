"""The upgrade of one run: looked at, checked, freed, and bound anew, with every race decided by its log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from perdure.api.reading import row_and_log
from perdure.api.upgrading import AS_IT_IS, Move, Recast, free, operations, upgrade_of
from perdure.errors import BindingGuard, UpgradeRefused, UpgradeStale, UsageError, VersionPurged
from perdure.model.status import EventType, Status
from perdure.model.write import Committed, Failed, Outdated
from perdure.replay.history import record
from perdure.replay.verdict import Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.api.checking import Target
    from perdure.api.operations import Operations
    from perdure.model.event import Event
    from perdure.model.run import RunRow
    from perdure.model.write import Upgrade
    from perdure.runtime.connection import Connection

_TRIES: Final = 20
_PAUSE_S: Final = 0.05
_FIRST_REASON: Final = "plan"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are upgraded, and what is accepted."""

    plan_id: str
    actor: str
    reason: str = _FIRST_REASON
    accepts_args: bool = False
    recast: Recast = AS_IT_IS
    forced: frozenset[str] = frozenset()
    wait_s: float = 0.0


class Done(NamedTuple):
    """An upgrade that was made."""

    text: str
    verdict: Verdict
    stale: UpgradeStale | None


class Rebinding:
    """Upgrades runs to one version.

    Args:
        engine: the engine.
        target: the version.
        terms: how.
    """

    def __init__(self, engine: Operations, target: Target, terms: Terms) -> None:
        self._engine = engine
        self._connection = engine.connection
        self._target = target
        self._terms = terms

    async def looked_at(self, run_id: str) -> tuple[RunRow, list[Event], Verdict]:
        """Return a run with its log, and what its check finds."""
        row, events = await row_and_log(self._connection, run_id)
        return row, events, await self._checked(row, events, self._write(row, events))

    def _write(self, row: RunRow, events: Sequence[Event], *, forced: bool = False) -> Upgrade:
        target, terms = self._target, self._terms
        move = Move(
            target.version_id, target.label, terms.actor, terms.reason, terms.plan_id, forced, target.version_count
        )  # fmt: skip
        return upgrade_of(self._connection, row, events, move, terms.recast, self._connection.commit_ids.take())

    async def _checked(self, row: RunRow, events: Sequence[Event], write: Upgrade) -> Verdict:
        """Check the log as it will be: so a retry, other names and what is dropped are seen as every replay sees it."""
        connection = self._connection
        history = record(row, [*events, *write.append.events], connection.codec)
        return await self._engine.checker.check_stored(connection, history, self._target)

    async def apply(self, run_id: str, from_version: int, seen: tuple[int, int], verdict: Verdict) -> Done:
        """Upgrade a run.

        Args:
            run_id: the run.
            from_version: what it was bound to when it was checked.
            seen: its epoch, and the length of its log, then.
            verdict: what was found then.

        Raises:
            UpgradeBusy: it is inside a step.
            UpgradeRefused: what its check finds is not accepted.
            BindingGuard: it is bound to something else by now.
            UsageError: it has ended, or lacks the operation that was named.
        """
        stale: UpgradeStale | None = None
        for _ in range(_TRIES):
            row, events = await self._free(run_id, from_version)
            stale = _moved(row, events, seen[1]) or stale
            if (row.epoch, len(events)) != seen or self._terms.recast.changes:
                verdict = await self._checked(row, events, self._write(row, events))
            forced = self._forced(run_id, verdict, stale)
            write = self._write(row, events, forced=forced)
            outcome = await self._connection.write(write)
            if isinstance(outcome, Committed):
                self._engine.message_sent(run_id)
                text = f"{row.workflow_version} → {self._target.label}{' (forced)' if forced else ''}: {verdict.kind}"
                return Done(f"{stale.text} {text}" if stale else text, verdict, stale)
            await self._again(outcome)
        message = f"run {run_id!r} changes too fast to be upgraded"
        raise UsageError(message, hint="try again")

    async def _free(self, run_id: str, from_version: int) -> tuple[RunRow, list[Event]]:
        """Return a run with its log once no worker is at it.

        Raises:
            UpgradeBusy: it is inside a step.
            BindingGuard: it is bound to something else by now.
        """
        connection, terms = self._connection, self._terms
        row, events = await row_and_log(connection, run_id)
        if row.version_id != from_version:
            raise BindingGuard(
                f"run {run_id} is bound to {row.workflow}@{row.workflow_version}; "
                "the binding changes only through an upgrade."
            )
        if row.status != Status.RUNNING:
            return row, events
        await free(connection, row, terms.actor, terms.reason, terms.wait_s, self._engine.message_sent)
        return await row_and_log(connection, run_id)

    async def _again(self, outcome: Any) -> None:
        if isinstance(outcome, Failed):
            raise outcome.error
        if isinstance(outcome, Outdated):
            target = self._target
            checker = self._engine.checker
            self._target = await checker.target_of(self._connection, target.workflow, target.version_id)
        else:  # somebody else was faster, or is just at it
            await asyncio.sleep(_PAUSE_S)

    def _forced(self, run_id: str, verdict: Verdict, stale: UpgradeStale | None) -> bool:
        """Whether a run is taken although of what was found.

        Raises:
            UpgradeRefused: it is not taken.
        """
        fine = {VerdictKind.SAFE, VerdictKind.SAFE_ARGS_DIFFER} if self._terms.accepts_args else {VerdictKind.SAFE}
        if verdict.kind in fine:
            return False
        if run_id in self._terms.forced:
            return True
        raise UpgradeRefused(f"{f'{stale.text} ' if stale else ''}{verdict}; not upgraded.", verdict=verdict)

    async def note(self, applied: int) -> None:
        """Record with the version that runs came to it."""
        target, terms, store = self._target, self._terms, self._connection.store

        def note() -> None:
            store.catalog.note(
                target.workflow, target.version_id, "upgrade_applied", {"plan": terms.plan_id, "runs": applied},
                at=store.now(), actor=terms.actor, reason=terms.reason,
            )  # fmt: skip

        await self._connection.read(note)


def _moved(row: RunRow, events: Sequence[Event], seen: int) -> UpgradeStale | None:
    before, now = operations(events[:seen]), operations(events)
    if before == now:
        return None
    return UpgradeStale(f"{row.id} moved on since the plan ({before} → {now} operations); checked again.")


async def take_back(engine: Operations, run_id: str, reason: str, actor: str, wait_s: float) -> str:
    """Revert the last upgrade of a run; see `perdure.api.upgrades.Upgrades.revert`. Returns what was done, one line."""
    connection = engine.connection
    for _ in range(_TRIES):
        row, events = await row_and_log(connection, run_id)
        if row.status == Status.RUNNING and _last_upgrade(events) is not None:
            await free(connection, row, actor, reason, wait_s, engine.message_sent)
            row, events = await row_and_log(connection, run_id)
        move = await _back(connection, row, events, reason, actor)
        write = upgrade_of(connection, row, events, move, AS_IT_IS, connection.commit_ids.take())
        outcome = await connection.write(write)
        if isinstance(outcome, Committed):
            engine.message_sent(run_id)
            return f"{row.workflow_version} → {move.label} (reverted)"
        if isinstance(outcome, Failed):
            raise outcome.error
    message = f"run {run_id!r} changes too fast to be reverted"
    raise UsageError(message, hint="try again")


def _last_upgrade(events: Sequence[Event]) -> Event | None:
    """Return the last upgrade since the run was forked, if it ever was."""
    for event in reversed(events):
        if event.type == EventType.RUN_UPGRADED:
            return event
        if event.type == EventType.RUN_FORKED:
            return None
    return None


async def _back(connection: Connection, row: RunRow, events: Sequence[Event], reason: str, actor: str) -> Move:
    upgrade = _last_upgrade(events)
    facts: dict[str, Any] = msgspec.json.decode(upgrade.detail or b"{}") if upgrade is not None else {}
    if upgrade is None or "reverts" in facts:
        message = f"run {row.id!r} has no upgrade that could be reverted"
        raise UsageError(message, run_id=row.id)
    later = operations(events[upgrade.seq :])
    if later or Status(row.status).is_terminal:
        what = f"recorded {later} operations" if later else f"ended ({row.status})"
        text = f"{row.id} has {what} since it was upgraded to {facts['to']}; upgrade it again, checked the other way."
        raise UpgradeRefused(text)
    definition = await connection.read(connection.store.catalog.definition, facts["from_version"])
    if definition is not None and definition.status == "purged":
        raise VersionPurged(f"{row.workflow}@{facts['from']} was purged; its code is gone.")
    return Move(
        facts["from_version"], facts["from"], actor, reason, facts.get("plan"),
        version_count=await connection.read(connection.store.catalog.count), reverts=upgrade.seq,
    )  # fmt: skip
