"""The primary dies, and its synchronous standby takes its place: what was acknowledged is there."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

import perdure
from perdure.model.write import COMMITTED, Write
from perdure.store.base import Store, StoreOptions, open_store
from perdure.testing.author import Author
from tests.faults.server.scene import Scene, said
from tests.process import Spawner
from tests.servers.fixtures import Database, DatabaseServer, Servers
from tests.servers.mariadb import PRIMARY
from tests.servers.postgres import Postgres
from tests.servers.server import HOST


def both(primary: Postgres, standby: Postgres, name: str) -> str:
    """Give the URL that names two servers, of which the one counts that takes writes."""
    hosts = f"{HOST}:{primary.port},{HOST}:{standby.port}"
    return f"postgresql://perdure@{hosts}/{name}?target_session_attrs=read-write"


@pytest.mark.serial
def test_nothing_acknowledged_is_lost_with_the_primary(
    servers: Servers, spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    primary = servers.postgres()
    name = primary.new_database()
    standby = servers.standby(primary)
    scene = Scene(spawn, tmp_path, Database(standby, name), url=both(primary, standby, name))
    load = scene.start("both", "w", durability="quorum", lease="5s")
    for _ in range(30):
        load.expect("ended")
    killed = time.monotonic()
    primary.kill()
    standby.promote()
    promoted = time.monotonic()
    # A primary without a standby does not give what was asked for: nothing is acknowledged until there is one again.
    while "does not give durability 'quorum' any more" not in load.err:
        assert time.monotonic() - promoted < 20
        time.sleep(0.05)
    third = servers.standby(standby)
    begin = time.monotonic()
    while len(said("ended", load)) < 60:
        load.expect("ended", 20)
    back = time.monotonic()
    scene.end(load)
    runs = scene.check(load)
    with capsys.disabled():
        print(
            f"\nprimary killed: standby promoted after {promoted - killed:.2f} s; with a standby of its own, "
            f"work went on after {back - begin:.2f} s; {runs} runs",
            end="",
        )
    assert third.execute("select pg_is_in_recovery()") == [(True,)]


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_a_commit_that_was_not_replicated_is_not_confirmed(servers: Servers, kind: str) -> None:
    """The primary was killed while it waited for its standby. When it is back it shows what only it has."""
    primary, standby = pair(servers, kind)
    name = primary.new_database()
    store = open_store(primary.url(name), StoreOptions(durability="quorum", busy_timeout_s=0.6))
    store.open()
    author = Author("run-1", store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    standby.pause()
    batch: list[Write] = [author.step()]
    with pytest.raises(perdure.StoreUnavailable):
        store.commit(batch)
    primary.kill()
    primary.start()
    assert events(primary, name) == 3
    with pytest.raises(perdure.StoreUnavailable):
        store.commit(batch)
    if kind == "mariadb":  # not even shown
        with pytest.raises(perdure.StoreUnavailable):
            store.load("run-1")
    standby.resume()
    confirm(store, batch)
    primary.kill()
    standby.promote()
    assert events(standby, name) == 3
    store.close()


def pair(servers: Servers, kind: str) -> tuple[DatabaseServer, DatabaseServer]:
    """Give a primary and a standby that it waits for."""
    if kind == "mariadb":
        first = servers.mariadb(settings=PRIMARY)
        return first, servers.mariadb_standby(first)
    primary = servers.postgres()
    return primary, servers.standby(primary)


def events(server: DatabaseServer, name: str) -> int:
    ((count,),) = Database(server, name).rows("select count(*) from event")
    return int(count)


def confirm(store: Store, batch: list[Write]) -> None:
    """Repeat a batch until it is confirmed."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with suppress(perdure.StoreUnavailable):
            assert store.commit(batch) == [COMMITTED]
            return
    raise AssertionError("not confirmed in time")


@pytest.mark.nightly
def test_a_wait_for_the_standby_that_is_cancelled_is_not_taken_for_a_commit(servers: Servers) -> None:
    """As by an operator. The server answers COMMIT, with a warning; only it has the transaction."""
    primary = servers.postgres()
    name = primary.new_database()
    standby = servers.standby(primary)
    store = open_store(primary.url(name), StoreOptions(durability="quorum", busy_timeout_s=2.0))
    store.open()
    author = Author("run-1", store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    standby.pause()
    cancel = (
        "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' "
        "and clock_timestamp() - state_change > interval '200 ms'"
    )
    batch: list[Write] = [author.step()]
    outcomes: list[object] = []

    def commit() -> None:
        try:
            outcomes.append(store.commit(batch))
        except perdure.StoreUnavailable as error:
            outcomes.append(error)

    thread = Thread(target=commit)
    thread.start()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline and not primary.execute(cancel):
        time.sleep(0.02)
    thread.join(20)
    (outcome,) = outcomes
    assert isinstance(outcome, perdure.StoreUnavailable)
    standby.resume()
    confirm(store, batch)
    store.close()


def test_a_server_that_has_become_a_standby_is_left(servers: Servers) -> None:
    """It refuses writes on connections that are there. Another one is looked for."""
    primary = servers.postgres()
    name = primary.new_database()
    other = servers.postgres()
    other.new_database()
    store = open_store(both(primary, other, name), StoreOptions())
    store.open()
    author = Author("run-1", store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    inner = store.inner  # type: ignore[attr-defined]
    with inner._opened().lend("write") as link:
        link.query("set default_transaction_read_only = on", ())
    with pytest.raises(perdure.StoreUnavailable):
        store.commit([author.step()])
    assert inner._opened()._links.get("write") is None
    store.close()
