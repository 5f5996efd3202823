"""The demonstration is held to what it claims: its own ledger is read again here, and it must be able to fail."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from perdure.demo import play as demo_play
from perdure.demo.cast import Cast
from perdure.demo.display import Stage, table
from perdure.demo.ledger import SERVICES, Audit, Demand, Ledger, audit
from perdure.demo.orders import ALTERED_EVERY, callbacks, load
from perdure.demo.play import Outcome, Scene, play
from perdure.demo.service import PATIENCE, Service, fortune
from perdure.errors import InvalidValue
from tests.process import Child, Spawner

PERDURE = "from perdure.cli.main import main; main()"


def processes_with(text: str) -> list[int]:
    """Give the processes of this machine whose command line or environment holds a text."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # ended, or not ours
    return found


def demo(spawn: Spawner, temporary: Path, *options: str) -> Child:
    """Start the command with a temporary folder of its own."""
    temporary.mkdir(exist_ok=True)
    return spawn.python(PERDURE, "demo", *options, env={"TMPDIR": str(temporary)})


def test_every_order_happens_once_although_workers_are_killed(spawn: Spawner, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    ended = demo(spawn, tmp_path / "tmp", "--json", "--orders", "80", "--seed", "5", "--dir", str(kept)).finish(80)
    assert (ended.code, ended.err) == (0, "")
    document = json.loads(ended.out)
    assert document["balanced"]
    assert document["kills"] >= 3
    assert document["cut"] >= document["kills"]
    assert (document["new"], document["duplicates"], document["conflicts"]) == (80, 80, 80 // ALTERED_EVERY)
    assert document["audit"]["reattempts"] >= document["audit"]["refused"] > 0
    assert document["runs"] == {"completed": 80}
    assert sum(document["begun"].values()) == 80
    assert document["begun"].keys() == {"1.0.0", "1.1.0"}
    assert document["under_way"] > 0
    assert document["strayed"] == 0
    orders = {order.order_id: order.cents for order in load(80)}
    with closing(sqlite3.connect(kept / "ledger.db")) as ledger:
        for service in SERVICES:
            rows = ledger.execute("select order_id, cents from effect where service = ?", (service,)).fetchall()
            assert sorted(rows) == sorted(orders.items())
    assert not list((tmp_path / "tmp").iterdir())
    assert not processes_with(str(tmp_path / "tmp"))


async def test_orders_come_after_the_deploy_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered = asyncio.Event()
    deliver, deploy = demo_play._deliver, Cast.deploy

    async def noted(*args: Any) -> None:
        await deliver(*args)
        delivered.set()

    async def late(cast: Cast) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(3):
                await delivered.wait()
        await deploy(cast)

    monkeypatch.setattr(demo_play, "_deliver", noted)
    monkeypatch.setattr(Cast, "deploy", late)
    outcome = await play(orders=60, seed=5, folder=tmp_path / "kept", tell=lambda scene: None)
    assert outcome.begun.keys() == {"1.0.0", "1.1.0"}
    assert outcome.balanced


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_leaves_no_process_and_no_folder_behind(
    spawn: Spawner, tmp_path: Path, number: signal.Signals
) -> None:
    temporary = tmp_path / "tmp"
    child = demo(spawn, temporary, "--orders", "60")
    deadline = os.times().elapsed + 30
    while len(processes_with(str(temporary))) < 4:  # the command, the services and two workers
        assert os.times().elapsed < deadline
    child.send(number)
    ended = child.finish()
    assert ended.code == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    while processes_with(str(temporary)):
        assert os.times().elapsed < deadline
    if number != signal.SIGKILL:
        assert not list(temporary.iterdir())


@pytest.mark.parametrize("options", [["--orders", "401"], ["--orders", "19"], ["--orders", "x"], ["--dir", "used"]])
def test_what_cannot_be_shown_is_refused_in_one_line(spawn: Spawner, tmp_path: Path, options: list[str]) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "shop.db").touch()
    given = [str(used) if option == "used" else option for option in options]
    ended = demo(spawn, tmp_path / "tmp", *given).finish()
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.count("\n") == 1
    assert not list((tmp_path / "tmp").iterdir())
    assert [path.name for path in used.iterdir()] == ["shop.db"]


# ------------------------------------------------------------------------------------------------------- the ledger

DEMANDS = (Demand("a", 100), Demand("b", 250))


def book(path: Path, *changes: tuple[str, str, str, int]) -> Audit:
    """Write a ledger in which both orders have every effect once, change it, and audit it."""
    ledger = Ledger(path)
    for order_id, cents in DEMANDS:
        for service in SERVICES:
            ledger.perform(service, f"{order_id}/{service}", order_id, cents, "done", "1.0.0")
    ledger.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        for service, key, order_id, cents in changes:
            if cents:
                connection.execute("insert into effect values (?, ?, ?, ?, '1.0.0')", (service, key, order_id, cents))
            else:
                connection.execute("delete from effect where service = ? and order_id = ?", (service, order_id))
    return audit(path, DEMANDS)


def test_a_whole_ledger_balances(tmp_path: Path) -> None:
    found = book(tmp_path / "ledger.db")
    assert found.balanced
    assert (found.orders, found.once["charge"], found.calls, found.reattempts) == (2, 2, 8, 0)


@pytest.mark.parametrize(
    "change,field",
    [
        (("charge", "a/charge", "a", 100), "twice"),
        (("charge", "another key", "a", 100), "twice"),
        (("ship", "", "b", 0), "lost"),
        (("charge", "x", "c", 100), "strangers"),
        (("charge", "x", "a", 101), "strangers"),
    ],
)
def test_a_ledger_with_a_fault_does_not_balance(tmp_path: Path, change: tuple[str, str, str, int], field: str) -> None:
    found = book(tmp_path / "ledger.db", change)
    assert getattr(found, field) == 1
    assert not found.balanced
    shown = table(outcome(found))
    assert "WRONG" in shown
    assert "DOES NOT BALANCE" in shown


def outcome(found: Audit) -> Outcome:
    return Outcome(
        audit=found, runs={"completed": 2}, new=2, duplicates=2, conflicts=1, kills=3, cut=4, under_way=1,
        begun={"1.0.0": 1, "1.1.0": 1}, strayed=0, seconds=1.0,
    )  # fmt: skip


def test_a_show_without_a_kill_proves_nothing(tmp_path: Path) -> None:
    whole = outcome(book(tmp_path / "ledger.db"))
    assert whole.balanced
    for field, value in (("kills", 0), ("strayed", 1), ("under_way", 0), ("begun", {"1.0.0": 2})):
        given = {name: getattr(whole, name) for name in whole.__slots__}
        assert not Outcome(**given | {field: value}).balanced


def test_what_another_release_did_is_seen(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.perform("reserve", "a/0", "a", 100, "done", "1.0.0")
    ledger.perform("charge", "a/1", "a", 100, "done", "1.1.0")
    ledger.close()
    assert audit(tmp_path / "ledger.db", DEMANDS).releases == {"a": ("1.0.0", "1.1.0")}


# ----------------------------------------------------------------------------------------------------- the services


async def ask(path: Path, request: dict[str, object]) -> dict[str, str] | None:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(json.dumps(request).encode() + b"\n")
    line = await reader.readline()
    writer.close()
    return json.loads(line) if line else None


async def test_a_key_that_comes_again_has_no_second_effect(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    request = {"service": "charge", "key": "k", "order_id": "a", "cents": 5, "pid": 1, "release": "1.0.0"}
    async with await asyncio.start_unix_server(Service(ledger, 1).serve, tmp_path / "s"):
        answers = [await ask(tmp_path / "s", request) for _ in range(PATIENCE + 1)]
    assert answers[-1] == {"receipt": "charge-a"}
    assert ledger.done("charge") == 1
    assert ledger.calls("charge", "k") == PATIENCE + 1
    ledger.close()


def test_what_fails_follows_from_the_seed() -> None:
    fates = [fortune(1, f"key-{number}", 1) for number in range(500)]
    assert fates == [fortune(1, f"key-{number}", 1) for number in range(500)]
    assert fates != [fortune(2, f"key-{number}", 1) for number in range(500)]
    assert 0 < sum(fate < 0.1 for fate in fates) < 100


def test_callbacks_come_twice_and_out_of_order() -> None:
    orders = load(100)
    sent = callbacks(orders, 3)
    assert sent == callbacks(orders, 3)
    assert sent != callbacks(orders, 4)
    assert len({order.payment_id for order in orders}) == 100
    altered = [callback for callback in sent if callback not in orders]
    assert len(altered) == 100 // ALTERED_EVERY
    assert all(sent.count(order) == 2 for order in orders)
    first = {order.payment_id: sent.index(order) for order in orders}
    assert all(sent.index(callback) > first[callback.payment_id] for callback in altered)
    assert [callback for callback in sent if callback in orders][:100] != orders


@pytest.mark.parametrize("count", [401, 19, 0, -1])
def test_a_number_of_orders_that_cannot_be_shown_is_an_error(count: int) -> None:
    with pytest.raises(InvalidValue, match="20 to 400"):
        load(count)


# ------------------------------------------------------------------------------------------------------- the screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_anything_else_plain_lines() -> None:
    drawn, plain = Terminal(), io.StringIO()
    for stream in (drawn, plain):
        stage = Stage(stream)
        for done in range(41):
            stage(Scene(orders=40, done=done, kills=0))
        stage(Scene(orders=40, done=40, kills=1, killed=7))
        stage.close()
    assert "[###" in drawn.getvalue()
    assert drawn.getvalue().endswith("\r\x1b[K")
    assert "\x1b" not in plain.getvalue()
    assert "\r" not in plain.getvalue()
    assert len(plain.getvalue().splitlines()) == 12
    assert "kill -9 number 1: a worker with 7" in plain.getvalue()
