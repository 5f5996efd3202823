"""What the cases share: a database, the outside ledger, engines here and worker processes elsewhere."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import pytest

import perdure
from tests.cases import flows
from tests.cases.ledger import PLACE, Ledger
from tests.process import Child, Spawner
from tests.servers.fixtures import Database, Servers

ROOT = Path(__file__).parents[2]
FLOWS = "tests.cases.flows"


class World:
    """One database with what works on it."""

    def __init__(self, folder: Path, spawn: Spawner, database: Database | None = None) -> None:
        """Set up.

        Args:
            folder: for all files.
            spawn: starts workers.
            database: on a server; an SQLite file without it.
        """
        self.folder = folder
        self.file = folder / "case.db"
        self.database = database
        self.url = f"sqlite:///{self.file}" if database is None else database.url
        self.ledger = Ledger(folder / "ledger")
        self._spawn = spawn

    def engine(self, workflows: Sequence[Any] | ModuleType = flows, **options: Any) -> perdure.Engine:
        """Give an engine on this database, in this process, with a short lease and not yet open."""
        given = [workflows] if isinstance(workflows, ModuleType) else workflows
        chosen = {"lease": "1s", "grace": "0.2s", "poll": "0.2s", **options}
        return perdure.Engine(self.url, given, **chosen)

    def client(self, workflows: Sequence[Any] | ModuleType = flows, **options: Any) -> perdure.Engine:
        """Give an engine that starts and reads runs and executes none."""
        return self.engine(workflows, worker=False, **options)

    def worker(
        self, name: str = "W1", *, fault: str = "", barrier: str = "", start: Sequence[Any] = (), client: bool = False,
        modules: Sequence[str] = (FLOWS,), env: Mapping[str, str] | None = None, wait: bool = True, **options: Any,
    ) -> Child:  # fmt: skip
        """Start a worker process and wait until it is ready."""
        chosen = {"lease": "1s", "grace": "5s", "poll": "0.2s", **options}
        if client:
            chosen["worker"] = False
        request = {
            "url": self.url, "name": name, "workflows": list(modules), "options": chosen, "fault": fault,
            "barrier": barrier, "start": list(start), "client": client,
        }  # fmt: skip
        path = os.pathsep.join(map(str, (ROOT, Path(perdure.__file__).parents[1], self.folder)))
        around = {PLACE: str(self.ledger.path), "PYTHONPATH": path, **(env or {})}
        child = self._spawn(sys.executable, "-m", "tests.cases.worker", json.dumps(request), env=around)
        if wait:
            child.expect("READY")
        return child

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Read the tables directly."""
        if self.database is not None:
            return self.database.rows(query, *values)
        with closing(apsw.Connection(str(self.file), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(5000)
            return connection.execute(query, values).fetchall()

    def write(self, statement: str, *values: Any) -> None:
        """Write to the tables directly, as an attacker or an accident would."""
        if self.database is not None:
            self.database.rows(statement, *values)
            return
        with closing(apsw.Connection(str(self.file))) as connection:
            connection.set_busy_timeout(5000)
            connection.execute(statement, values)

    def types(self, run_id: str) -> list[str]:
        """Give the types of a run's events."""
        return [kind for (kind,) in self.rows("select type from event where run_id = ? order by seq", run_id)]


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, spawn: Spawner, monkeypatch: pytest.MonkeyPatch) -> World:
    """Give a world of its own to a case: on what `tests.cases.backends` or else the command line asks for."""
    kind: str = getattr(request, "param", None) or request.config.getoption("--store")
    made = World(tmp_path, spawn, None if kind == "sqlite" else request.getfixturevalue("new_store")(kind))
    monkeypatch.setenv(PLACE, str(made.ledger.path))
    return made


@pytest.fixture
def own(
    servers: Servers, kind: str, tmp_path: Path, spawn: Spawner, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., World]:
    """Give a maker of a world on a server of the test's own, which may be killed."""

    def make(**settings: str | int) -> World:
        server = servers.start(kind, settings=settings)
        world = World(tmp_path, spawn, Database(server, server.new_database()))
        monkeypatch.setenv(PLACE, str(world.ledger.path))
        return world

    return make


def server_of(world: World) -> Any:
    """Give the server of a world that is on one."""
    assert world.database is not None
    return world.database.server


@pytest.fixture(params=["mariadb", "memory", "postgres", "sqlite"])
async def engine(request: pytest.FixtureRequest, world: World) -> AsyncIterator[perdure.Engine]:
    """Give an open engine with the workflows of the test's module, on each backend."""
    if request.param in ("mariadb", "postgres"):
        url: str = request.getfixturevalue("new_store")(request.param).url
    else:
        url = "sqlite://" if request.param == "memory" else world.url
    flows = [value for value in vars(request.module).values() if isinstance(value, perdure.Workflow)]
    async with perdure.Engine(url, flows, lease="2s", grace=0, max_bytes=200_000_000) as opened:
        yield opened
