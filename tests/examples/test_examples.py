"""Every example runs, does what its page says, and stays short enough to be read."""

from __future__ import annotations

import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.process import Child, Spawner

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MOST_LINES = 79

Start = Callable[..., Child]


@pytest.fixture
def start(spawn: Spawner, tmp_path: Path) -> Start:
    """Give a starter of examples, all in one folder."""

    def run(name: str, *arguments: str) -> Child:
        return spawn(sys.executable, ROOT / "examples" / f"{name}.py", *arguments, folder=tmp_path)

    return run


def lines(child: Child) -> list[str]:
    ended = child.finish()
    assert (ended.code, ended.err) == (0, "")
    return ended.out.splitlines()


def test_order_is_fulfilled_once_however_often_it_is_asked_for(start: Start) -> None:
    first, second = lines(start("order")), lines(start("order"))
    receipt = "Receipt(order_id='order-42', payment='payment-order-42', parcel='parcel with label-order-42')"
    assert first[:2] == ["reserving teapot", "charging 4900 cents"]
    assert len(first) == 6
    assert first[-1] == receipt
    assert second == [receipt]


def test_pipeline_scores_public_data_and_keeps_its_checkpoints(start: Start, tmp_path: Path) -> None:
    found = lines(start("pipeline"))
    assert len(found) == 5
    assert all(re.fullmatch(r" *\d+ km  [A-Z]{3}  \S.*", line) for line in found)
    assert "Mataveri" in found[0]  # Easter Island, far from everything
    with closing(sqlite3.connect(tmp_path / "pipeline.db")) as database:
        events = database.execute("select type, name from event order by seq").fetchall()
    assert [name for kind, name in events if kind == "checkpoint_reached"] == ["cleaned", "scored"]
    assert [name for kind, name in events if kind == "step_completed"].count("score") >= 5
    assert lines(start("pipeline")) == found


def test_payment_is_tried_again_under_one_key_and_a_declined_card_is_not(start: Start) -> None:
    assert lines(start("payment")) == [
        "attempt 1 with key payment-1:0",
        "attempt 2 with key payment-1:0",
        "attempt 3 with key payment-1:0",
        "paid 4900 cents",
        "attempt 1 with key payment-2:0",
        "card 'stolen' was declined, nothing was paid",
        "4 calls, 1 payment",
    ]


def test_reminder_goes_on_after_a_restart_while_it_sleeps(start: Start) -> None:
    sleeping = start("reminder", "3s")
    sleeping.expect("looking whether invoice-7 is paid")
    sleeping.send(signal.SIGINT)
    assert sleeping.finish().code != 0
    assert lines(start("reminder", "3s")) == [
        "run invoice-7 is under way",
        "reminder 1 for invoice-7",
        "looking whether invoice-7 is paid",
        "reminder 2 for invoice-7",
        "looking whether invoice-7 is paid",
        "invoice-7 was paid after 2 reminders",
    ]


def test_script_needs_no_event_loop(start: Start) -> None:
    assert lines(start("script")) == [
        "fetching the invoices of ada",
        "rendering",
        "ada owes 72.49",
        "statement-ada: completed",
    ]


def test_agent_calls_each_tool_once_and_repeats_nothing(start: Start) -> None:
    told = lines(start("agent"))
    answer = "Go to Rome: Oslo has rain; Rome has sun; seat 12A to Rome is booked."
    assert [line for line in told if line.startswith("tool")] == [
        "tool: weather in Oslo",
        "tool: weather in Rome",
        "tool: booking a flight to Rome",
    ]
    assert told[-1] == answer
    assert lines(start("agent")) == [answer]


def test_at_most_once_does_not_send_again_what_a_crash_cut_off(start: Start, tmp_path: Path) -> None:
    assert start("at_most_once", "crash").finish().code == 1
    ended = start("at_most_once").finish()
    assert (ended.code, ended.out) == (0, "sent, as the provider says\n")
    assert (tmp_path / "sent.txt").read_text("utf-8").count("\n") == 1


def test_stock_coupon_and_number_are_taken_once_under_duplicates_and_by_hand(start: Start, tmp_path: Path) -> None:
    told = lines(start("stock"))
    assert told == [
        "order 1: {'parcel 1'}",
        "order 1 by hand: shipped before",
        "order 2: {'parcel 2'}",
        "order 2 by hand: shipped before",
        "stock and what was taken: (80, 20)",
        "parcels: (2, 2)",
    ]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        assert shop.execute("select used_by from coupon order by code").fetchall() == [(1,), (2,)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_has_a_test(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert text.startswith('"""')
    own = Path(__file__).read_text("utf-8")
    assert f'start("{path.stem}"' in own
