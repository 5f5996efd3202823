"""The request id: the effect, the request and its answer are one, on every kind of connection."""

from __future__ import annotations

import pytest

from perdure import GuardConflict, GuardError, UsageError, guard
from tests.guard.clients import Client
from tests.guard.conftest import Connect


def lines(client: Client) -> list[str]:
    with client.transaction():
        return [row[0] for row in client.execute("select what from ledger order by what")]


def work(client: Client, request: str, answer: object = "done", **options: object) -> object:
    with client.transaction(), client.once(request, **options) as once:
        if once.first:
            client.execute("insert into ledger values (?)", request)
            once.answer = answer
    return once.answer


def test_a_repeat_gets_the_stored_answer_and_does_nothing(client: Client) -> None:
    assert work(client, "req-1", {"parcel": "P1", "cents": 12}) == {"parcel": "P1", "cents": 12}
    assert work(client, "req-1", "another answer") == {"parcel": "P1", "cents": 12}
    assert work(client, "req-2", None) is None
    assert work(client, "req-2", "another answer") is None
    assert lines(client) == ["req-1", "req-2"]


def test_what_is_rolled_back_is_new_again(client: Client) -> None:
    with pytest.raises(ZeroDivisionError), client.transaction(), client.once("req-1") as once:
        client.execute("insert into ledger values (?)", 1 / (not once.first))
    assert lines(client) == []
    assert work(client, "req-1") == "done"
    assert lines(client) == ["req-1"]


def test_a_block_that_raises_leaves_nothing_even_if_the_caller_commits(client: Client) -> None:
    with client.transaction():
        client.execute("insert into ledger values (?)", "before")
        try:
            with client.once("req-1"):
                client.execute("insert into ledger values (?)", "in the block")
                raise ZeroDivisionError
        except ZeroDivisionError:
            client.execute("insert into ledger values (?)", "refused")
    assert lines(client) == ["before", "refused"]
    assert work(client, "req-1") == "done"


def test_another_body_is_a_conflict_and_not_an_answer(client: Client) -> None:
    assert work(client, "req-1", body={"order": 1, "items": ["a", "b"]}) == "done"
    with pytest.raises(GuardConflict, match="'req-1' was made before with another body"):
        work(client, "req-1", body={"order": 2, "items": ["a", "b"]})
    assert work(client, "req-1", body={"items": ["a", "b"], "order": 1}) == "done"
    assert work(client, "req-1") == "done"  # who gives no body asks for no check
    assert lines(client) == ["req-1"]


def test_ids_that_differ_in_case_or_blanks_are_different(client: Client) -> None:
    requests = ("a", "A", "a ", "ä", "😀", "😀" * 500)
    for request in requests:
        with client.transaction(), client.once(request) as once:
            assert once.first
            once.answer = request
    assert [work(client, request, "another answer") for request in requests] == list(requests)


def test_two_in_one_transaction(client: Client) -> None:
    with client.transaction(), client.once("req-1") as outer:
        with client.once("req-2") as inner:
            assert outer.first
            assert inner.first
        with client.once("req-2") as again:
            assert not again.first
    assert not [request for request in ("req-1", "req-2") if work(client, request) is not None]


def test_a_commit_inside_the_block_is_told(client: Client) -> None:
    client.begin()
    with pytest.raises(GuardError, match="cannot be stored"), client.once("req-1") as once:
        client.execute("insert into ledger values (?)", "req-1")
        client.commit()
        client.begin()
        once.answer = 1
    client.rollback()
    with pytest.raises(GuardError, match="committed without an answer"):
        work(client, "req-1")
    assert lines(client) == ["req-1"]


def test_without_a_table_the_error_says_what_to_do(connect: Connect) -> None:
    client = connect()
    with pytest.raises(GuardError, match=r"no table perdure_guard .*create_table"):
        work(client, "req-1")
    client.create_table()
    client.create_table()
    with client.transaction(), client.once("req-1") as once:
        assert once.first


def test_the_table_is_not_made_inside_a_transaction(client: Client) -> None:
    client.begin()
    client.execute("insert into ledger values ('x')")
    with pytest.raises(UsageError, match="outside of a transaction"):
        client.create_table()
    client.rollback()
    assert lines(client) == []


def test_old_requests_are_forgotten(client: Client) -> None:
    for number in range(5):
        work(client, f"req-{number}")
    with client.transaction():
        assert client.forget("1h") == 0
        client.execute("update perdure_guard set created_at = '2020-01-01 00:00:00' where answer is not null")
        assert client.forget("1h", 3) == 3
        assert client.forget("1h", 3) == 2
    assert work(client, "req-0", "anew") == "anew"


def test_the_other_colour_is_refused(client: Client) -> None:
    with client.transaction():
        if client.is_async:
            with pytest.raises(UsageError, match="is async"), guard.once(client.raw, "req-1"):
                pass
            with pytest.raises(UsageError, match="is async"):
                guard.insert(client.raw, "ledger", {"what": "x"})
        else:
            with pytest.raises(UsageError, match="cannot be awaited"):
                guard.insert.aio(client.raw, "ledger", {"what": "x"}).send(None)
