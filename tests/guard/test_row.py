"""Guards on the application's own rows, and the double guard, on every kind of connection."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import StateMismatch, UsageError, guard
from tests.guard.clients import Client

SHIPPED = {"before": {"state": "paid"}, "after": {"state": "shipped", "parcel": "P1"}}


def order(client: Client, state: str | None) -> None:
    with client.transaction():
        client.execute("insert into orders values (1, ?, ?)", state, None)


def orders(client: Client) -> list[tuple[Any, ...]]:
    with client.transaction():
        return client.execute("select id, state, parcel from orders order by id")


def test_a_business_key_lets_one_row_in(client: Client) -> None:
    key = {"order_id": 1, "step": "ship"}
    with client.transaction():
        assert client.insert("shipment", key, {"number": "P1"})
        assert not client.insert("shipment", key, {"number": "P2"})
    with client.transaction():
        assert not client.insert("shipment", key, {"number": "P3"})
        assert client.insert("shipment", {"order_id": 2, "step": "ship"}, {"number": "P4"})
        assert client.execute("select number from shipment order by order_id") == [("P1",), ("P4",)]


def test_another_unique_key_of_the_table_is_no_repeat(client: Client) -> None:
    with client.transaction():
        assert client.insert("shipment", {"order_id": 1, "step": "ship"}, {"number": "P1"})
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"), client.transaction():
        client.insert("shipment", {"order_id": 2, "step": "ship"}, {"number": "P1"})


@pytest.mark.parametrize("key", [{"order_id": 1}, {"step": "ship", "number": "P1"}])
def test_a_key_that_is_not_unique_guards_nothing_and_is_refused(client: Client, key: dict[str, object]) -> None:
    with pytest.raises(Exception, match=r"(?i)unique|ON CONFLICT"), client.transaction():
        client.insert("shipment", key, {"step": "ship"} if len(key) == 1 else {"order_id": 1})
    with client.transaction():
        assert client.execute("select number from shipment") == []


def test_a_key_without_a_value_is_refused(client: Client) -> None:
    for key in ({}, {"order_id": 1, "step": None}):
        with pytest.raises(UsageError, match="values other than None"), client.transaction():
            client.insert("shipment", key)


def test_a_state_changes_once(client: Client) -> None:
    order(client, "paid")
    with client.transaction():
        assert client.change("orders", {"id": 1}, **SHIPPED)
    with client.transaction():
        assert not client.change(
            "orders", {"id": 1}, before={"state": "paid"}, after={"state": "shipped", "parcel": "P2"}
        )
    assert orders(client) == [(1, "shipped", "P1")]


@pytest.mark.parametrize("state", ["cancelled", None])
def test_a_row_in_another_state_is_not_touched(client: Client, state: str | None) -> None:
    order(client, state)
    with pytest.raises(StateMismatch) as told, client.transaction():
        client.change("orders", {"id": 1}, **SHIPPED)
    assert (told.value.found, told.value.expected, told.value.is_after) == ({"state": state}, {"state": "paid"}, False)
    assert orders(client) == [(1, state, None)]


def test_a_row_that_is_not_there_is_told(client: Client) -> None:
    with pytest.raises(StateMismatch, match="is not there") as told, client.transaction():
        client.change("orders", {"id": 1}, **SHIPPED)
    assert told.value.found is None


def test_none_is_a_state(client: Client) -> None:
    order(client, None)
    with client.transaction():
        assert client.change("orders", {"id": 1}, before={"state": None}, after={"state": "paid"})
        assert not client.change("orders", {"id": 1}, before={"state": None}, after={"state": "paid"})
        assert client.change("orders", {"id": 1}, before={"state": "paid"}, after={"state": None})
    assert orders(client) == [(1, None, None)]


def test_what_would_guard_nothing_is_refused(client: Client) -> None:
    order(client, "paid")
    for before, after in (
        ({"state": "paid"}, {"state": "paid", "parcel": "P1"}),
        ({"state": "paid"}, {"parcel": "P1"}),
        ({}, {"state": "paid"}),
        ({"id": 1}, {"id": 2}),
    ):
        with pytest.raises(UsageError), client.transaction():
            client.change("orders", {"id": 1}, before=before, after=after)
    assert orders(client) == [(1, "paid", None)]


def test_a_change_of_more_than_one_row_is_refused(client: Client) -> None:
    order(client, "paid")
    with client.transaction():
        client.execute("insert into orders values (2, 'paid', null)")
    with pytest.raises(UsageError, match="2 rows of table 'orders'"), client.transaction():
        client.change("orders", {"parcel": None}, before={"state": "paid"}, after={"state": "shipped"})
    assert orders(client) == [(1, "paid", None), (2, "paid", None)]


def ship(client: Client, request: str) -> object:
    change = guard.Change("orders", {"id": 1}, SHIPPED["before"], SHIPPED["after"])
    with client.transaction(), client.once(request, change=change) as once:
        if once.first:
            client.execute("insert into ledger values (?)", request)
            once.answer = f"shipped for {request}"
    return once.answer


def test_the_double_guard_answers_a_repeat_and_refuses_a_second_request(client: Client) -> None:
    order(client, "new")
    with pytest.raises(StateMismatch, match="'new'"):
        ship(client, "req-1")
    with client.transaction():
        client.change("orders", {"id": 1}, before={"state": "new"}, after={"state": "paid"})
    assert ship(client, "req-1") == "shipped for req-1"
    assert ship(client, "req-1") == "shipped for req-1"
    with pytest.raises(StateMismatch) as told:
        ship(client, "req-2")  # somebody runs it again by hand
    assert told.value.is_after
    with client.transaction():
        assert client.execute("select what from ledger") == [("req-1",)]
        assert client.execute("select count(*) from perdure_guard") == [(1,)]
