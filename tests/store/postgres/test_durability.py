"""Durability `host`: what makes a server lose what it has confirmed is found out, and refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.errors import StoreUnavailable, UsageError
from perdure.model.write import COMMITTED
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.postgres.schema import Given, given, problems
from perdure.testing.author import Author
from tests.servers.fixtures import Database, Servers
from tests.servers.postgres import USER, Postgres

SOUND = Given(
    pid=1, version_number=150_000, version="15", in_recovery=False, read_only="off", encoding="UTF8", fsync="on",
    full_page_writes="on", synchronous_commit="on", standbys="", data_sync_retry="off", started="",
)  # fmt: skip


def opened(url: str, durability: str = "host") -> Store:
    store = open_store(url, StoreOptions(durability=durability))
    store.open()
    return store


def refused(url: str) -> str:
    with pytest.raises(UsageError, match="durability 'host' is not what this server gives") as caught:
        opened(url)
    opened(url, "process").close()
    return str(caught.value)


def change(server: Postgres, name: str, value: str) -> None:
    """Set what takes effect while the server runs, and wait until it has."""
    server.execute(f"alter system set {name} = {value}")
    server.execute("select pg_reload_conf()")
    while server.execute(f"show {name}") != [(value,)]:
        pass


def test_each_setting_with_which_a_commit_can_be_lost_is_refused(servers: Servers) -> None:
    """At the start with a hint; later, when the server is another one, until it is as it was."""
    server = servers.postgres(settings={"data_sync_retry": "on"})
    url = server.url(server.new_database())
    assert "data_sync_retry is on" in refused(url)
    server.execute("alter system set data_sync_retry = off")
    server.restart()
    store = opened(url)
    author = Author("run-1", store.now())
    assert store.commit([author.create()]) == [COMMITTED]
    for name in ("fsync", "full_page_writes"):
        change(server, name, "off")
        assert f"{name} is off" in refused(url)
        assert f"{name} is off" in {fact.name: fact.problem for fact in store.stats().facts}["durability"]
        server.cut_connections(url.rpartition("/")[2])
        create = Author(f"run-{name}", store.now()).create()
        with pytest.raises(StoreUnavailable):  # the connection that was cut
            store.commit([create])
        with pytest.raises(StoreUnavailable, match=f"durability 'host' any more: {name} is off"):
            store.commit([create])
        change(server, name, "on")
        assert store.commit([create]) == [COMMITTED]
        assert {fact.name: fact.problem for fact in store.stats().facts}["durability"] == ""
    assert len(store.load("run-1")) == 1
    store.close()
    opened(url).close()


@pytest.mark.parametrize(
    "name,value,problem",
    [
        ("fsync", "off", "fsync is off"),
        ("full_page_writes", "off", "full_page_writes is off"),
        ("data_sync_retry", "on", "data_sync_retry is on, so that an error of the disk may be passed over"),
        ("synchronous_commit", "off", "synchronous_commit is off"),
    ],
)
def test_every_way_to_lose_a_commit_is_known(name: str, value: str, problem: str) -> None:
    assert problems(SOUND, "host") == []
    assert problems(SOUND._replace(data_sync_retry=None), "host") == []
    worse = Given(**(SOUND._asdict() | {name: value}))
    assert problems(worse, "host") == [problem]
    assert problem in problems(worse._replace(standbys="standby"), "quorum")
    assert problems(worse, "process") == []


@pytest.mark.parametrize("pooled", [False, True])
def test_a_role_that_does_not_wait_for_the_disk_waits_with_us(
    new_store: Callable[[str], Database], pooled: bool
) -> None:
    database = new_store("postgres")
    role = f"hasty_{database.name}"
    database.execute(f"create role {role} superuser login")
    database.execute(f"alter role {role} set synchronous_commit = off")
    url = database.url.replace(f"//{USER}@", f"//{role}@", 1) + ("?pooled=true" if pooled else "")
    for durability, expected in (("host", "on"), ("process", "off")):
        store = opened(url, durability)
        with store.inner._opened().lend("write") as link:  # type: ignore[attr-defined]
            assert given(link).synchronous_commit == expected
        assert {fact.name: fact.problem for fact in store.stats().facts}["durability"] == ""
        store.close()
    database.execute(f"drop role {role}")
