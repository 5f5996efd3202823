"""Values on their way into SQL and back: nothing gets lost, changed or executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.model.event import Event
from perdure.model.write import COMMITTED, Failed, Write
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.mysql.literal import event_row, literal, row, table
from perdure.store.mysql.statement import Statement
from perdure.testing.author import Author
from tests.servers.fixtures import Servers

TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.one_of(st.none(), TEXTS, st.binary(), st.integers(-(2**63), 2**63 - 1))
HOSTILE = [
    "'",
    "\\",
    "\\'",
    "' or 1=1 -- ",
    "\0",
    "\x1a",
    "\n",
    "%s",
    "?",
    "rows(?)",
    "é'",
    "\U0001f600\\",
    "''",
    "/*",
    "`",
]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(VALUES, min_size=1, max_size=8))
def test_every_value_comes_back(store: Store, values: list[Any]) -> None:
    with store.inner._opened().lend("work") as link:  # type: ignore[attr-defined]
        got = link.query(f"select {', '.join('?' * len(values))}", values).rows
    assert got == [tuple(values)]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_values_come_back(store: Store, text: str) -> None:
    data = text.encode() + b"\xe3'\\\xff"
    with store.inner._opened().lend("work") as link:  # type: ignore[attr-defined]
        assert link.query("select ?, ?, ?", (text, data, text)).rows == [(text, data, text)]
        assert link.query("select value from rows(?) as t", ((text, "b"),)).rows == [(text,), ("b",)]


@pytest.mark.parametrize("value", [1.5, object(), ["a"], {"a": 1}])
def test_what_no_column_holds_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        literal(value)


def test_half_a_character_is_refused() -> None:
    for text in ("\ud800", "a\udcffb"):
        with pytest.raises(UnicodeEncodeError):
            literal(text)


@given(st.tuples(TEXTS, *[VALUES] * 15))
def test_the_quick_way_writes_an_event_as_the_plain_way_does(values: tuple[Any, ...]) -> None:
    event = Event._make(values)
    try:
        expected = row(event)
        quick = event_row(event)
    except (TypeError, AttributeError):
        return  # refused: a value of a type that its column does not have
    assert quick == expected


def test_as_many_values_as_places() -> None:
    with pytest.raises(ValueError, match="zip"):
        Statement("select ?").fill((1, 2))
    assert Statement("select ? in (?)").fill((1, ("a", "b"))) == b"select 1 in ('a', 'b')"
    assert Statement("select ? in (?)").fill((1, ())) == b"select 1 in (null)"
    assert table(()) == b"(select null as value)"


def test_ids_differ_as_their_bytes_do(store: Store) -> None:
    ids = ["a", "A", "á", "a ", "a  ", " a", "\uff41", "ß", "ss", "ﬁ", "fi"]
    for run_id in ids:
        author = Author(run_id, store.now())
        tags = (("key", run_id),)
        assert (
            store.commit([author.create(fresh=False, queue=run_id, tags=tags), author.claimed(run_id)])
            == [COMMITTED] * 2
        )
    for run_id in ids:
        assert list(store.owned(run_id)) == [run_id]
        assert [event.run_id for event in store.load(run_id)] == [run_id] * 2


def test_a_batch_is_larger_than_a_packet(servers: Servers) -> None:
    server = servers.mariadb(settings={"max_allowed_packet": "1M"})
    store = open_store(server.url(server.new_database()), StoreOptions())
    store.open()
    author, others = Author("run-1", store.now()), [Author(f"run-{n}", store.now()) for n in range(2, 40)]
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    payload = bytes(range(256)) * 400
    batch: list[Write] = [other.create() for other in others]
    batch += [author.step(payload) for _ in range(40)]
    assert store.commit(batch) == [COMMITTED] * len(batch)
    assert [event.payload for event in store.load("run-1", after=2)] == [payload] * 40
    large = author.stale().step(b"x" * 1_100_000)
    another = Author("run-100", store.now()).create()
    outcomes = store.commit([large, another])
    assert outcomes is not None
    assert isinstance(outcomes[0], Failed)
    assert "more than the server takes at once" in str(outcomes[0].error)
    assert outcomes[1] == COMMITTED
    assert len(store.load("run-1")) == 42
    store.close()


def test_a_value_of_twenty_megabytes(servers: Servers) -> None:
    """Longer than a packet of the protocol, which is then sent in parts."""
    server = servers.mariadb(settings={"max_allowed_packet": "64M", "innodb_log_file_size": "256M"})
    store = open_store(server.url(server.new_database()), StoreOptions())
    store.open()
    author = Author("run-1", store.now())
    payload = b"\\'\xff0123456789" * (20 << 16)
    assert len(payload) > 1 << 24
    assert store.commit([author.create(), author.claimed("w"), author.step(payload)]) == [COMMITTED] * 3
    assert store.load("run-1", after=2)[0].payload == payload
    store.close()


def test_texts_that_are_too_long_fail_alone(store: Store, open_more: Callable[[], Store]) -> None:
    author = Author("x" * 501, store.now())
    outcomes = store.commit([Author("run-1", store.now()).create(), author.create()])
    assert outcomes is not None
    assert outcomes[0] == COMMITTED
    assert isinstance(outcomes[1], Failed)
    assert open_more().get("run-1") is not None
