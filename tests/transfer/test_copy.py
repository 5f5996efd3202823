"""A store that is moved goes on as if nothing had happened; a copy that is cut off goes on, too."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.cli import main as cli
from perdure.errors import StoreCorrupt, UsageError
from perdure.model.claim import ClaimRequest
from perdure.model.run import RunRow, Tombstone, WorkerRow
from perdure.model.write import Blocked, Create
from perdure.store import bulk
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.bulk import DERIVED, TABLES, open_bulk
from perdure.store.catalog.base import Catalog
from perdure.testing.author import Author, claims_for, worker
from perdure.testing.conformance.publishing import publish, set_route, set_status, sha
from perdure.transfer import copy as copying
from perdure.transfer.copy import copy
from perdure.verify.database import verify
from perdure.version.signature import Signature
from tests.process import Child, Spawner
from tests.servers.fixtures import Database
from tests.transfer import flows

COPY = """
import sys, threading
from perdure.transfer import copy as copying

def tell(what, rows):
    print(what, rows, flush=True)
    if sys.argv[3:] and sys.argv[3] in f"{what} {rows}":
        threading.Event().wait()

copying._MOST_ROWS = 3
copying.copy(sys.argv[1], sys.argv[2], tell)
print("done", flush=True)
"""
CUTS = ("copying request", "copying run 6", "copying event 12", "copying event 6", "comparing event",
        "checking the target")  # fmt: skip
"""Where a copy is killed, one after the other; each goes on where the one before it was."""


def environment(**more: str) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(sys.path), **more}


def quiet(what: str, rows: int) -> None:
    """Show nothing."""


def opened(url: str) -> Store:
    store = open_store(url, StoreOptions())
    store.open()
    return store


def is_kept_out(store: Store, what: Create) -> bool:
    try:
        store.open()
        outcomes = store.commit([what])
    except perdure.errors.StoreUnavailable:
        return True
    return outcomes is not None and isinstance(outcomes[0], Blocked)


@pytest.fixture
def urls(new_database: Callable[[str], Database], tmp_path: Path) -> Callable[[str], str]:
    """Give a function from a kind to the URL of an empty database."""
    numbers = count()

    def make(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/{next(numbers)}.db"
        return new_database(kind).url

    return make


def filled(spawn: Spawner, url: str, record: Path) -> None:
    """Bring a run into every state and kill the worker that holds one of them; then send a message nobody takes in."""
    child: Child = spawn(
        sys.executable, "-m", "tests.transfer.flows", url, env=environment(RECORD=str(record), HOLD="yes")
    )
    child.expect("holding", within=20)
    child.destroy()
    asyncio.run(after(url))


async def after(url: str) -> None:
    async with perdure.Engine(url, worker=False) as engine:
        await engine.get("told").cancel(actor="ada", reason="enough")
    while live(url):
        await asyncio.sleep(0.05)


def live(url: str) -> list[str]:
    with closing(open_bulk(url, writing=False)) as store:
        return store.live()


async def go_on(url: str) -> dict[str, str]:
    """Let a worker finish everything at the target."""
    async with perdure.Engine(url, worker=False) as engine:
        queue = await engine.queue("narrow").info()
        assert (queue.concurrency, queue.fair, queue.due) == (1, True, 4)
        assert [one.reason for one in queue.changes] == ["few at once"]
        narrow = {str(run.tags["n"]): run.id async for run in engine.list(queue="narrow")}
        for name, found in narrow.items():
            again = await engine.start(flows.plain, queue="narrow", deduplication_key=name)
            assert again.id == found
    async with perdure.Engine(url, flows.WORKFLOWS, queues=["default", "narrow"], lease=2.0, poll=0.05) as engine:
        for name in narrow.values():
            await engine.get(name).result()
        for name in ("asleep", "retrying", "delayed", "held"):
            await engine.get(name).result()
        await flows.reach(engine, "told", "cancelled")
        assert await engine.get("done").result() == "a" * 100 + "b" * 100
        again = await engine.start(flows.plain, id="done")
        assert await again.status() == "completed"
        assert [run.id async for run in engine.list(tag={"tenant": "x"})] == ["asleep", "done"]
        return {run.id: str(run.status) async for run in engine.list() if run.queue != "narrow"}


def cut_off(spawn: Spawner, source: str, target: str) -> None:
    for place in CUTS:
        child = spawn.python(COPY, source, target, place, env=environment())
        child.expect(place, within=30)
        child.destroy()
        if place != CUTS[0]:
            with pytest.raises(UsageError, match="has not finished"):
                opened(target)
    child = spawn.python(COPY, source, target, env=environment())
    child.expect("done", within=30)
    assert child.finish().code == 0
    opened(target).close()


@pytest.mark.timeout(360)
@pytest.mark.parametrize(
    "path", [("sqlite", "postgres", "mariadb", "sqlite"), ("sqlite", "mariadb", "postgres", "sqlite")]
)
def test_runs_go_on_at_the_target_exactly_once_however_often_the_copy_is_killed(
    path: tuple[str, ...], urls: Callable[[str], str], spawn: Spawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    monkeypatch.setenv("RECORD", str(record))
    first = current = urls(path[0])
    filled(spawn, first, record)
    before = verify(first)
    for kind in path[1:]:
        target = urls(kind)
        if current == first:
            cut_off(spawn, current, target)
        else:
            copy(current, target, quiet)
        current = target
    found = asyncio.run(go_on(current))
    assert found == {
        "done": "completed", "failed": "failed", "parked": "parked", "asleep": "completed", "told": "cancelled",
        "retrying": "completed", "delayed": "completed", "elsewhere": "pending", "held": "completed",
    }  # fmt: skip
    steps = Counter(record.read_text().split("\n")[:-1])
    assert steps.pop("held held") == 2  # it was in flight at the kill
    assert set(steps.values()) == {1}
    assert steps["asleep b"] == steps["retrying unsteady 2"] == steps["retrying b"] == steps["delayed b"] == 1
    store = opened(current)
    assert isinstance(store.get("purged"), Tombstone)
    store.close()
    assert verify(current, [*found, "purged"]).findings == []
    assert verify(first) == before


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_what_is_hard_to_move_arrives_as_it_was(kind: str, urls: Callable[[str], str]) -> None:
    source, target = urls(kind), urls("postgres" if kind == "sqlite" else "sqlite")
    store = opened(source)
    strange = "a\0b" if kind != "mariadb" else "a\1b"
    store.register(worker("gone", store.now()))
    for number, run_id in enumerate((strange, "z", "\U0001f600", "\uffff", "Z ", "\u00e9")):
        author = Author(run_id, store.now())
        store.commit([author.create(priority=number)])
        claims = store.claim(ClaimRequest("gone", ("default",), ("0 order",), 1, only=run_id), claims_for("gone"))
        assert claims is not None
        author.follow(claims.taken[0])
        store.commit([author.step(bytes(range(256)) * 4096)])
    store.heartbeat("gone", 0)
    store.close()
    copy(source, target, quiet)
    with_rows = [rows_of(source), rows_of(target)]
    assert with_rows[0] == with_rows[1]
    moved = opened(target)
    assert moved.sweep() in ([], ["gone"])
    assert {one.state for one in moved.stats().workers} <= {"dead", "left"}
    moved.close()


def rows_of(url: str) -> dict[str, list[Any]]:
    opened = open_bulk(url, writing=False)
    found = {table.name: list(opened.rows(table)) for table in TABLES if table.name != "worker"}
    opened.close()
    return found


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_the_source_is_locked_and_a_live_worker_or_a_full_target_is_refused(
    kind: str, urls: Callable[[str], str]
) -> None:
    source, target = urls(kind), urls("sqlite")
    store = opened(source)
    store.commit([Author("one", store.now()).create()])
    alive: WorkerRow = worker("alive", store.now())
    store.register(alive)
    with pytest.raises(UsageError, match="live workers are registered there: alive"):
        copy(source, target, quiet)
    store.heartbeat("alive", 0)
    held = open_bulk(source, writing=False)
    impatient = open_store(source, StoreOptions(busy_timeout_s=0.5))
    assert is_kept_out(impatient, Author("two", store.now()).create())
    impatient.close()
    held.close()
    store.close()
    copy(source, target, quiet)
    with pytest.raises(UsageError, match="not empty"):
        copy(source, target, quiet)
    with pytest.raises(UsageError, match="not empty"):
        copy(target, source, quiet)


def test_a_source_that_changed_after_the_cut_is_not_mixed_with_what_is_there(
    urls: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = urls("sqlite"), urls("postgres")
    store = opened(source)
    store.commit([Author(f"run-{n}", store.now()).create() for n in range(10)])

    def cut(what: str, rows: int) -> None:
        if what == "copying run":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(source, target, cut)
    store.commit([Author("late", store.now()).create()])
    store.close()
    with pytest.raises(UsageError, match="earlier state"):
        copy(source, target, quiet)


def test_a_row_that_differs_is_found_and_the_target_stays_shut(urls: Callable[[str], str]) -> None:
    source, target = urls("sqlite"), urls("sqlite")
    store = opened(source)
    store.commit([Author(f"run-{n}", store.now()).create() for n in range(3)])
    store.close()

    def meddle(what: str, rows: int) -> None:
        if what == "copying event":
            other = open_bulk(target, writing=True)
            run = next(table for table in TABLES if table.name == "run")
            row = list(next(other.rows(run)))
            row[0] = "stowaway"
            other.write(run, [tuple(row)])
            other.close()

    with pytest.raises(StoreCorrupt, match="stowaway"):
        copy(source, target, meddle)
    with pytest.raises(UsageError, match="has not finished"):
        opened(target)


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_every_table_and_column_of_a_store_is_moved_or_made_again(
    kind: str, urls: Callable[[str], str], new_database: Callable[[str], Database], tmp_path: Path
) -> None:
    columns = columns_of(kind, urls, new_database)
    known = {table.name: set(table.columns) for table in TABLES}
    assert set(columns) == (set(known) - ({"event"} if kind == "sqlite" else set())) | (DERIVED & set(columns))
    derived = {"run": {"no", "due_queue", "code"}, "queue": {"counted"}}
    for name, found in columns.items():
        if name in known:
            assert found - derived.get(name, set()) == known[name], name


def columns_of(kind: str, urls: Callable[[str], str], new_database: Callable[[str], Database]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    if kind == "sqlite":
        url = urls(kind)
        store = opened(url)
        rows = store.inner._session.reader.execute(  # type: ignore[attr-defined]
            "select m.name, c.name from sqlite_schema as m, pragma_table_info(m.name) as c where m.type = 'table'"
        ).fetchall()
    else:
        database = new_database(kind)
        store = opened(database.url)
        rows = database.execute(
            "select table_name, column_name from information_schema.columns where table_schema = "
            + ("'perdure'" if kind == "postgres" else "database()")
        )
    store.close()
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    return found


def test_memory_is_bounded_by_bytes_and_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_MOST_ROWS", 3)
    monkeypatch.setattr(copying, "_MOST_BYTES", 1000)
    rows = [(n, b"x" * size) for n, size in enumerate((10, 10, 10, 10, 950, 2000, 10, 10))]
    assert [[row[0] for row in part] for part in copying._parts(iter(rows))] == [[0, 1, 2], [3, 4], [5], [6, 7]]


def test_the_command_says_what_it_did(urls: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    source, target = urls("sqlite"), urls("sqlite")
    store = opened(source)
    store.commit([Author(f"run-{n}", store.now()).create() for n in range(3)])
    store.close()
    assert cli.run(["copy", "--from", source, "--to", target]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("3 runs, 3 events, 0 tombstones, 0 messages copied to ")
    assert "copying event" in err
    assert cli.run(["copy", "--from", source, "--to", target]) == 2
    assert "the target is not empty" in capsys.readouterr().err
    assert cli.run(["copy", "--from", "sqlite://", "--to", target]) == 2
    assert cli.run(["copy", "--from", source, "--to", source]) == 2
    assert bulk.MARK_NUMBER == 9999


def stock(catalog: Catalog) -> tuple[object, ...]:
    """Return all that a catalog says."""
    shelf = catalog.shelf("order")
    files = [sha("v1"), sha("v2"), sha("")]
    found = catalog.definition(1), catalog.release(2), sorted(catalog.blobs(files)), catalog.log("order")
    return (*found, shelf.known.versions, shelf.known.labels, shelf.routes)


@pytest.mark.parametrize("path", [("sqlite", "postgres", "mariadb", "sqlite"), ("mariadb", "mariadb")])
def test_versions_and_runs_bound_to_them_are_moved(path: tuple[str, ...], urls: Callable[[str], str]) -> None:
    current = urls(path[0])
    store = opened(current)
    for text, semver in (("v1", "1.0.0"), ("v2", "2.0.0-rc.1"), ("v1", "1.1.0")):
        publish(store.catalog, text, semver, "order", "refund")
    set_route(store.catalog, {"1.0.0": 95, "2.0.0-rc.1": 5})
    set_status(store.catalog, 3, "withdrawn")
    store.catalog.add_signature("order", Signature(1, "k1", "aa" * 64, "ana", 1), reason="released")
    store.commit([Author("bound", store.now()).create(version_id=1, version_count=store.catalog.count())])
    before = stock(store.catalog)
    store.close()
    for number, kind in zip(range(5, 99, 2), path[1:], strict=False):
        target = urls(kind)
        copy(current, target, quiet)
        current = target
        store = opened(current)
        assert stock(store.catalog) == before
        assert store.catalog.count() == len(store.catalog.log("order")) + len(store.catalog.log("refund"))
        row = store.get("bound")
        assert isinstance(row, RunRow)
        assert row.version_id == 1
        (one, _) = publish(store.catalog, f"on {current}", None, "order", "refund")
        assert one.version_id == number  # numbers go on behind what is there
        store.close()
        before = stock_of(current)


def stock_of(url: str) -> tuple[object, ...]:
    store = opened(url)
    found = stock(store.catalog)
    store.close()
    return found
