"""``perdure queues``: looking at queues, setting their limits, pausing and resuming them."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import FLOWS, Shell
from tests.cli.test_bad_input import is_one_clear_line

ADD = f"{FLOWS}:add"


@pytest.fixture
def queued(shell: Shell) -> Shell:
    for _ in range(2):
        assert shell("start", ADD, "--input", "[1, 2]", "--queue", "mail", "--partition-key", "k").code == 0
    return shell


def test_what_is_set_is_shown_with_who_set_it_and_why(queued: Shell) -> None:
    given = ("--concurrency", "3", "--rate", "100/1m", "--ageing", "30s", "--fair", "--hold-while-waiting")
    told = queued("queues", "set", "mail", *given, "--actor", "ada", "--reason", "slow server")
    assert (told.code, told.out) == (0, "queue mail: set\n")
    shown = queued("queues", "show", "mail").out
    assert "concurrency  3\n" in shown
    assert "0 of 100 in 60s" in shown
    assert "ada" in shown
    assert "slow server" in shown
    facts = json.loads(queued("queues", "show", "mail", "--json").out)
    assert (facts["concurrency"], facts["due"], facts["fair"], facts["hold_while_waiting"]) == (3, 2, True, True)
    assert facts["changes"][0]["changed"]["ageing_us"] == [None, 30_000_000]


def test_a_limit_is_taken_away_by_none_and_others_stay(queued: Shell) -> None:
    assert queued("queues", "set", "mail", "--concurrency", "3", "--concurrency-per-key", "1").code == 0
    assert queued("queues", "set", "mail", "--concurrency", "none").code == 0
    facts = json.loads(queued("queues", "show", "mail", "--json").out)
    assert (facts["concurrency"], facts["concurrency_per_key"]) == (None, 1)


def test_a_paused_queue_is_shown_as_such_and_resumed(queued: Shell) -> None:
    assert queued("queues", "pause", "mail", "--reason", "maintenance").code == 0
    listed = queued("queues", "list").out
    assert "mail" in listed
    assert "paused" in listed
    assert queued("queues", "resume", "mail").code == 0
    assert "paused" not in queued("queues", "list").out
    lines = queued("queues", "list", "--json").out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["mail"]


def test_a_queue_nobody_has_used_is_empty(queued: Shell) -> None:
    assert json.loads(queued("queues", "show", "other", "--json").out)["due"] == 0


def test_a_repeat_with_a_deduplication_key_prints_the_run_there_is(shell: Shell) -> None:
    words = ("start", ADD, "--input", "[1, 2]", "--deduplication-key", "k")
    assert shell(*words).out == shell(*words).out


WRONG: dict[str, tuple[list[str], str]] = {
    "no limit of 0": (["set", "mail", "--concurrency", "0"], "must be a whole number from 1"),
    "no word": (["set", "mail", "--concurrency", "many"], "neither a whole number nor 'none'"),
    "no rate": (["set", "mail", "--rate", "100"], "neither a rate such as 100/1m"),
    "no span": (["set", "mail", "--ageing", "soon"], "must be a span of time"),
    "nothing": (["set", "mail"], "nothing to set"),
    "no name": (["pause", ""], "a queue's name must be a text"),
}


@pytest.mark.parametrize("which", WRONG)
def test_what_cannot_be_set_is_one_clear_line(queued: Shell, which: str) -> None:
    words, said = WRONG[which]
    is_one_clear_line(queued("queues", *words), said)


@pytest.mark.parametrize("weight", ["other=2", "mail=x"])
def test_a_weight_is_a_number_for_a_queue_that_is_served(shell: Shell, weight: str) -> None:
    is_one_clear_line(shell("worker", ADD, "--queue", "mail", "--weight", weight), f"--weight {weight}")


@pytest.mark.parametrize("route", ["nonsense", "=slow", "media.*="])
def test_a_route_is_a_pattern_and_a_queue(shell: Shell, route: str) -> None:
    told = shell("worker", ADD, "--route", route)
    is_one_clear_line(told, "a queue's name" if route == "media.*=" else f"--route': {route!r} is not of the form")
    assert not (shell.folder / "runs.db").exists()
