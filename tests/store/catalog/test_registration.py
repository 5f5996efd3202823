"""Registration by real processes: at once, cut off, and with its answer lost."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from perdure.errors import StoreCorrupt, StoreUnavailable
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.instrumented import Instrumented
from perdure.store.memory import MemoryStore
from perdure.store.sqlite.fault import translate
from perdure.testing.conformance.publishing import AT, actions, deciding, publish, set_route, set_status, sha, shop
from perdure.verify.database import verify
from perdure.version.manifest import make_blob
from tests.process import Spawner
from tests.servers.fixtures import Database, Servers
from tests.servers.proxy import Where
from tests.store.sqlite.test_commit import LostCommit

REGISTER = """
import os, sys, time
from perdure.errors import UnbumpedChange
from perdure.store.base import StoreOptions, open_store
from perdure.testing.conformance.publishing import publish

url, number, policy, gate, rounds = sys.argv[1:]
store = open_store(url, StoreOptions(busy_timeout_s=30.0))
store.open()
for turn in range(int(rounds)):
    print("ready", turn, flush=True)
    while not os.path.exists(f"{gate}{turn}"):
        time.sleep(0.0005)
    workflow = f"w{turn}"
    try:
        (one,) = publish(store.catalog, f"v{int(number) % 2}", "1.3.0", workflow, on_unbumped=policy)
        print("is", turn, one.label, flush=True)
    except UnbumpedChange:
        print("is", turn, "refused", flush=True)
store.close()
"""
PROCESSES, ROUNDS = 16, 5
HALFWAY = """
import sys
from perdure.store.base import StoreOptions, open_store
from perdure.testing.conformance.publishing import deciding, shop, store_files

store = open_store(sys.argv[1], StoreOptions())
store.open()
store_files(store.catalog, "v1")
release, definitions = shop("v1")

def decide(*given):
    print("inside", flush=True)
    sys.stdin.read()

store.catalog.register(release, definitions, decide, at=0, actor="", reason="")
"""


def environment() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("policy", ["auto", "refuse"])
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_of_sixteen_processes_with_two_contents_one_content_gets_the_number(
    policy: str, url: str, store: Store, spawn: Spawner, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    children = [
        spawn.python(REGISTER, url, str(number), policy, str(gate), str(ROUNDS), env=environment())
        for number in range(PROCESSES)
    ]
    for turn in range(ROUNDS):
        for child in children:
            child.expect(f"ready {turn}", within=60)
        Path(f"{gate}{turn}").touch()
    said = [line.split() for child in children for line in child.finish(within=60).out.splitlines()]
    expected = 2 if policy == "auto" else 1
    for turn in range(ROUNDS):
        came_to = Counter(words[2] for words in said if words[:2] == ["is", str(turn)])
        assert sorted(came_to.values()) == [8, 8], came_to
        assert came_to["1.3.0"] == 8
        workflow = f"w{turn}"
        known = store.catalog.shelf(workflow).known
        assert (len(known.versions), len(known.labels)) == (expected, expected)
        assert actions(store.catalog, workflow) == ["published"] * expected
    assert store.catalog.count() == ROUNDS * expected
    assert verify(url).findings == []


def test_a_process_that_dies_in_the_middle_leaves_nothing_and_its_files_hinder_nobody(
    url: str, store: Store, spawn: Spawner
) -> None:
    child = spawn.python(HALFWAY, url, env=environment())
    child.expect("inside", within=30)
    child.destroy()
    assert (store.catalog.workflows(), store.catalog.count()) == ([], 0)
    assert store.catalog.missing([sha("v1")]) == []
    assert verify(url).findings == []
    release, definitions = shop("v1")
    (one,) = store.catalog.register(release, definitions, deciding("1.0.0"), at=AT, actor="ana", reason="")
    assert (one.label, store.catalog.count()) == ("1.0.0", 1)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_change_whose_commit_is_not_known_is_made_once_when_it_is_made_again(store: Store, *, done: bool) -> None:
    catalog = store.catalog
    catalog.add_blobs(make_blob(text) for text in (b"", b"v1"))
    changes: list[tuple[str, Callable[[], object]]] = [
        ("published", lambda: register(store)),
        ("route_set", lambda: set_route(catalog, {"1.0.0": 1})),
        ("withdrawn", lambda: set_status(catalog, 1, "withdrawn")),
    ]
    for count, (action, change) in enumerate(changes, start=1):
        lost = LostCommit(store, done=done)
        with pytest.raises(StoreUnavailable) as caught:
            change()
        assert caught.value.unknown
        assert lost.hits == 1
        assert catalog.count() == (count if done else count - 1)
        change()
        assert (catalog.count(), actions(catalog)[-1]) == (count, action)
    assert len(catalog.log("order")) == 3


def register(store: Store) -> int:
    release, definitions = shop("v1")
    (one,) = store.catalog.register(release, definitions, deciding("1.0.0"), at=AT, actor="ana", reason="")
    return one.version_id


@pytest.mark.parametrize("where", ["before", "after", "mid-reply"])
@pytest.mark.parametrize("kind", ["postgres", "mariadb"], indirect=True)
def test_a_registration_whose_answer_is_lost_on_the_way_is_made_once(
    where: Where, kind: str, servers: Servers, new_database: Callable[[str], Database]
) -> None:
    database = new_database(kind)
    proxy = servers.proxy(database.server)
    store = open_store(database.server.url(database.name, port=proxy.port), StoreOptions())
    store.open()
    try:
        store.catalog.add_blobs(make_blob(text) for text in (b"", b"v1"))
        proxy.on_commit(where, touching="version_label")
        with pytest.raises(StoreUnavailable) as caught:
            register(store)
        assert caught.value.unknown
        assert proxy.cuts == 1
        assert store.catalog.count() == (where != "before")
        assert register(store) == 1
        assert (store.catalog.count(), actions(store.catalog)) == (1, ["published"])
    finally:
        store.close()


def test_an_error_of_the_driver_becomes_one_of_ours() -> None:
    inner = MemoryStore()

    def count() -> int:
        raise apsw.BusyError

    inner.catalog.count = count  # type: ignore[method-assign]
    store = Instrumented(inner, translate)
    with pytest.raises(StoreUnavailable):
        store.catalog.count()
    assert store.counters()["version_count_calls"] == 1


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_what_cannot_be_read_is_damage(url: str, store: Store) -> None:
    publish(store.catalog, "v1", "1.0.0")
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("drop trigger definition_version_no_update")
    connection.execute("update definition_version set parts = '{'; update release_tree set manifest = '{'")
    connection.close()
    for call in (store.catalog.definition, store.catalog.release):
        with pytest.raises(StoreCorrupt, match="cannot be read"):
            call(1)
