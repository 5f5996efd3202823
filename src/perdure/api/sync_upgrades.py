"""`SyncUpgrades`: what binds runs to other versions, for code without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping, Sequence

    from perdure.api.engine import Engine
    from perdure.api.health import EngineStats
    from perdure.api.sync import SyncRun
    from perdure.api.upgrades import UpgradePlan, UpgradeResult, Upgrades
    from perdure.model.duration import Duration


T = TypeVar("T")


class SyncUpgrades:
    """See `Upgrades`. Made by `SyncEngine.upgrades`."""

    def __init__(self, engine: SyncUpgrading, upgrades: Upgrades) -> None:
        self._engine = engine
        self._upgrades = upgrades

    def plan(
        self, *, to: str, ids: Iterable[str] | None = None, workflow: Any = None, from_version: str | None = None,
        status: str | Iterable[str] | None = None, limit: int = 1000, actor: str | None = None,
    ) -> UpgradePlan:  # fmt: skip
        """Choose runs and check the history of each against a version; see `Upgrades.plan`."""
        return self._engine.wait(
            self._upgrades.plan(
                to=to, ids=ids, workflow=workflow, from_version=from_version, status=status, limit=limit, actor=actor
            )
        )  # fmt: skip

    def status(self, plan: UpgradePlan | str) -> UpgradePlan:
        """Return a plan as it stands now; see `Upgrades.status`."""
        return self._engine.wait(self._upgrades.status(plan))

    def apply(
        self, plan: UpgradePlan | str, *, reason: str, actor: str | None = None, accept: Iterable[str] = (),
        map: Mapping[str, str] | None = None, from_step: str | int | None = None, force: Iterable[str] = (),
        wait: Duration = "10s",
    ) -> Sequence[UpgradeResult]:  # fmt: skip
        """Bind the runs of a plan to its version; see `Upgrades.apply`."""
        return self._engine.wait(
            self._upgrades.apply(
                plan, reason=reason, actor=actor, accept=accept, map=map, from_step=from_step, force=force, wait=wait
            )
        )  # fmt: skip

    def revert(self, run_id: str, *, reason: str, actor: str | None = None, wait: Duration = "10s") -> UpgradeResult:
        """Bind a run to the version it came from; see `Upgrades.revert`."""
        return self._engine.wait(self._upgrades.revert(run_id, reason=reason, actor=actor, wait=wait))


class SyncUpgrading:
    """Part of `perdure.SyncEngine`."""

    engine: Engine

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Do what is async, and wait for it. Internal."""
        raise NotImplementedError

    def get(self, run_id: str) -> SyncRun[Any]:
        """Return a handle on a run by its id, without looking whether it exists."""
        raise NotImplementedError

    def fork(
        self, run_id: str, *, id: str | None = None, from_step: str | int | None = None, to: str | None = None,
        actor: str | None = None, reason: str | None = None,
    ) -> SyncRun[Any]:  # fmt: skip
        """Start a new run that begins with what another one has recorded; see `Engine.fork`."""
        forked = self.engine.fork(run_id, id=id, from_step=from_step, to=to, actor=actor, reason=reason)
        return self.get(self.wait(forked).id)

    def stats(self) -> EngineStats:
        """Return what this engine has counted so far; see `Engine.stats`."""
        return self.engine.stats()

    @property
    def upgrades(self) -> SyncUpgrades:
        """What binds runs to other versions; see `Engine.upgrades`."""
        return SyncUpgrades(self, self.engine.upgrades)
