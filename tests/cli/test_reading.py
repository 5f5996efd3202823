"""``list``, ``show``, ``history``, ``doctor``, ``migrate``: they tell what is there and change nothing."""

from __future__ import annotations

import re
import signal
import time
from threading import Event
from typing import Any

import apsw
import msgspec
import pytest

from perdure.store.migrate import migrations
from tests.cli.conftest import FLOWS, Shell


def ids(shell: Shell, *words: object) -> list[str]:
    told = shell("list", "--json", *words)
    assert told.code == 0, told.err
    return [msgspec.json.decode(line)["id"] for line in told.out.splitlines()]


def document(shell: Shell, *words: object) -> dict[str, Any]:
    value = shell(*words, "--json").value
    assert isinstance(value, dict)
    return value


@pytest.fixture
def filled(shell: Shell) -> Shell:
    for number in range(5):
        tag = f"kind={'odd' if number % 2 else 'even'}"
        words = ("--input", str(number), "--id", f"r{number}", "--tag", tag, "--queue", f"q{number % 2}")
        assert shell("start", f"{FLOWS}:add", *words).code == 0
    assert shell("run", f"{FLOWS}:boom", "--id", "bad").code == 1
    return shell


def test_list_filters(filled: Shell) -> None:
    assert ids(filled) == ["bad", "r4", "r3", "r2", "r1", "r0"]
    assert ids(filled, "--status", "failed") == ["bad"]
    assert ids(filled, "--status", "failed", "--status", "pending", "--tag", "kind=odd") == ["r3", "r1"]
    assert ids(filled, "--workflow", "boom") == ["bad"]
    assert ids(filled, "--queue", "q1") == ["r3", "r1"]
    assert ids(filled, "--since", "1h", "--until", "2000-01-01") == []
    assert len(ids(filled, "--since", "1h")) == 6
    assert ids(filled, "--version", "9") == []


def test_list_goes_on_after_a_cursor(filled: Shell) -> None:
    told = filled("list", "--limit", "2")
    assert "--cursor r4" in told.err
    assert ids(filled, "--limit", "3", "--cursor", "r4") == ["r3", "r2", "r1"]


def test_a_table_is_aligned_and_plain_where_there_is_no_terminal(filled: Shell) -> None:
    told = filled("list")
    lines = told.out.splitlines()
    assert "\x1b" not in told.out
    assert {line.index("add") for line in lines if " add " in line} == {lines[0].index("WORKFLOW")}


def test_show_tells_checkpoint_values_and_result(shell: Shell) -> None:
    assert shell("run", f"{FLOWS}:fulfil", "--input", '[{"sku": "a"}]', "--id", "f").code == 0
    shown = document(shell, "show", "f")
    assert shown["checkpoint"]["name"] == "packed"
    assert shown["values"] == {"progress": 0.5}
    assert shown["result"] == {"parcel": "1 x a"}
    assert shown["waits_for"] == []
    out = shell("show", "f").out
    assert "packed at 20" in out
    assert "value progress  0.5" in out


def test_show_prints_one_column_of_names_and_one_of_values(shell: Shell) -> None:
    assert shell("run", f"{FLOWS}:fulfil", "--input", '{"order": {"sku": "tea"}}', "--id", "f").code == 0
    lines = shell("show", "f").out.splitlines()
    assert any(line.startswith("value progress  0.5") for line in lines)
    wide = len("value progress")
    assert [line for line in lines if line[wide : wide + 2] != "  " or line[wide + 2] == " "] == []


def test_show_tells_how_a_run_failed(filled: Shell) -> None:
    assert document(filled, "show", "bad")["failure"] == "ValueError: boom"


def test_show_tells_what_a_run_waits_for(shell: Shell) -> None:
    worker = shell.process("worker", FLOWS, "--lease", "2s")
    for name in ("sleeper", "retrying", "holding"):
        assert shell("start", name, "--id", name).code == 0
    worker.expect("holding")

    def waits(run_id: str) -> dict[str, Any]:
        deadline = time.monotonic() + 10
        while True:
            shown = document(shell, "show", run_id)
            if shown["run"]["status"] == "waiting" and shown["waits_for"]:
                (wait,) = shown["waits_for"]
                assert isinstance(wait, dict)
                return wait
            assert time.monotonic() < deadline, shown
            Event().wait(0.05)

    timer, step = waits("sleeper"), waits("retrying")
    assert (timer["kind"], timer["due"] is not None) == ("timer", True)
    assert (step["kind"], step["name"], step["attempt"]) == ("step", "refuse", 2)
    assert step["detail"] == "after ValueError: no\nway"
    assert step["due"] is not None
    owned = document(shell, "show", "holding")
    assert owned["run"]["owner"]
    assert owned["run"]["owner"] in owned["waits_for"][0]["detail"]
    assert "attempt 2, due 20" in shell("show", "retrying").out
    (failed,) = [line for line in shell("history", "retrying", "--full").out.splitlines() if "_failed" in line]
    assert re.search(r"  next_at=20\d\d-\d\d-\d\d \d\d:\d\d", failed)
    assert failed.count("ValueError") == 1
    worker.send(signal.SIGKILL)


def test_history_says_who_did_what_with_what_input_and_output(shell: Shell) -> None:
    assert shell("run", f"{FLOWS}:fulfil", "--input", f'[{{"sku": "{"x" * 100}"}}]', "--id", "f").code == 0
    told = shell("history", "f")
    assert told.out.splitlines()[0].split() == [
        "SEQ", "AT", "EVENT", "NAME", "ATTEMPT", "VERSION", "BY", "INPUT", "OUTPUT", "DETAIL",
    ]  # fmt: skip
    assert "x" * 100 not in told.out
    assert "x" * 100 in shell("history", "f", "--full").out
    log = [msgspec.json.decode(line) for line in shell("history", "f", "--json").out.splitlines()]
    (step,) = [one for one in log if one["type"] == "step_completed"]
    assert step["input"] == {"sku": "x" * 100, "count": 1}
    assert step["result"] == f"1 x {'x' * 100}"
    assert step["worker"]


def test_history_shows_values_of_classes_that_are_not_here(shell: Shell) -> None:
    started = shell.process("start", f"{FLOWS}:fulfil", "--input", '[{"sku": "a"}]', "--id", "f").finish()
    assert started.code == 0
    shown = shell.process("history", "f").finish()
    assert "cannot read" not in shown.out
    assert '"sku":"a"' in shown.out


def test_doctor_is_content_with_a_good_database(shell: Shell) -> None:
    assert shell("run", f"{FLOWS}:add", "--input", "1").code == 0
    told = shell("doctor")
    assert told.code == 0, told.out
    assert "nothing is wrong" in told.out
    for word in (
        "journal mode",
        "synchronous",
        "schema",
        "rights",
        "file system",
        "clock",
        "apsw",
        "msgspec",
        "python",
    ):
        assert word in told.out
    found = document(shell, "doctor")
    assert found["problems"] == []
    assert {fact["name"]: fact["value"] for fact in found["health"]["facts"]}["rights"] == "0600"


def test_doctor_finds_what_is_wrong(shell: Shell) -> None:
    assert shell("run", f"{FLOWS}:stuck", "--id", "s").code == 3
    assert shell("start", "nobody", "--id", "n").code == 0
    (shell.folder / "runs.db").chmod(0o644)
    told = shell("doctor")
    assert told.code == 1
    assert "chmod 600" in told.out
    assert "1 parked" in told.out
    assert "workflow 'nobody'" in told.out
    assert "s" in told.out


def test_doctor_reads_while_others_write_and_changes_nothing(shell: Shell) -> None:
    worker = shell.process("worker", FLOWS)
    assert shell("start", "add", "--input", "1", "--wait").code == 0
    before = sorted(path.name for path in shell.folder.iterdir())
    found = document(shell, "doctor")
    assert [one["state"] for one in found["health"]["workers"]] == ["live"]
    assert "add" in found["health"]["workers"][0]["workflows"]
    assert sorted(path.name for path in shell.folder.iterdir()) == before
    worker.send(signal.SIGKILL)
    worker.finish()


def test_reading_makes_no_file(shell: Shell) -> None:
    for words in (
        ["doctor"],
        ["list"],
        ["show", "x"],
        ["history", "x"],
        ["cancel", "x"],
        ["retry", "x"],
        ["purge", "x"],
    ):
        told = shell(*words)
        assert told.code == 2
        assert told.err == f"error: {shell.folder}/runs.db: no such file; name the database with --db or PERDURE_DB\n"
        assert list(shell.folder.iterdir()) == []


def test_migrate_makes_a_database_and_says_so(shell: Shell) -> None:
    told = shell("migrate")
    newest = migrations("sqlite")[-1]
    last = f"{newest.number:04d}_{newest.name}"
    assert (told.code, told.out) == (0, f"{shell.db}: schema {last} is current\n")
    assert shell("migrate").out == told.out
    assert shell("doctor").code == 0


def test_the_printed_schema_can_be_applied_by_hand(shell: Shell) -> None:
    told = shell("migrate", "--print")
    assert told.code == 0
    assert list(shell.folder.iterdir()) == []
    connection = apsw.Connection(str(shell.folder / "runs.db"))
    connection.execute(told.out)
    connection.close()
    (shell.folder / "runs.db").chmod(0o600)
    assert shell("run", f"{FLOWS}:add", "--input", "1").value == 2


def test_an_output_that_nobody_reads_is_no_error(shell: Shell) -> None:
    assert shell("run", f"{FLOWS}:add", "--input", "1").code == 0
    child = shell.process("history", "x" * 200)
    child._pipe().close()
    assert child.process.wait(10) == 2
    child = shell.process("migrate", "--print")
    child._pipe().close()
    assert child.process.wait(10) == 0
    assert child.err == ""
