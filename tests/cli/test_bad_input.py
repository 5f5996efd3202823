"""Bad input: one clear line on standard error, exit code 2, no traceback, nothing left behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import apsw
import pytest

from perdure.store.migrate import migrations
from tests.cli.conftest import FLOWS, Shell, Told
from tests.process import Unprivileged

ADD = f"{FLOWS}:add"
MAKING = (["run", ADD, "--input", "1"], ["worker", ADD], ["start", ADD, "--input", "1"])
DATABASE_COMMANDS = (*MAKING, ["list"], ["doctor"])

WRONG: dict[str, tuple[list[str], str]] = {
    "no command of that name": (["walk"], "No such command 'walk'"),
    "no option of that name": (["list", "--walk"], "No such option"),
    "no target": (["run"], "Missing argument 'TARGET'"),
    "wrong target": (["run", "nowhere.py"], "no such file: nowhere.py"),
    "wrong worker target": (["worker", "no_such_module"], "no module 'no_such_module'"),
    "no such workflow": (["run", f"{FLOWS}:nothing"], "has no workflow 'nothing'"),
    "several workflows": (["run", str(FLOWS)], "has several workflows: "),
    "unknown argument": (["run", ADD, "--arg", "up=1"], "add: has no argument 'up'; it takes left, right"),
    "missing argument": (["run", ADD], "add: missing argument 'left'"),
    "too many arguments": (["run", ADD, "--input", "[1, 2, 3]"], "add: takes at most 2 positional arguments, got 3"),
    "wrong type": (["run", ADD, "--input", '"x"'], "add: argument 'left': Expected `int`, got `str`"),
    "wrong nested type": (["run", f"{FLOWS}:fulfil", "--input", '[{"sku": 1}]'], "fulfil: argument 'order'"),
    "no JSON": (["run", ADD, "--input", "{left: 1}"], "add: the input is not JSON"),
    "no JSON for a name": (["start", "add", "--input", "{"], "add: the input is not JSON"),
    "two inputs": (["run", ADD, "--input", "1", "--arg", "left=1"], "--input and --arg cannot be given together"),
    "argument without value": (["run", ADD, "--arg", "left"], "'left' is not of the form name=value"),
    "argument twice": (["run", ADD, "--arg", "left=1", "--arg", "left=2"], "--arg gives one name twice"),
    "reserved argument": (["start", "add", "--arg", "*=1"], "no argument can have the name '*'"),
    "empty id": (["run", ADD, "--input", "1", "--id", ""], "a run id must be a text of 1 to 255 characters"),
    "long id": (["start", ADD, "--input", "1", "--id", "x" * 256], "a run id must be a text of 1 to 255 characters"),
    "empty queue": (["start", ADD, "--input", "1", "--queue", ""], "a queue's name must be"),
    "empty served queue": (["worker", ADD, "--queue", ""], "a queue's name must be"),
    "bad duration": (["start", ADD, "--input", "1", "--delay", "soon"], "must be a span of time"),
    "negative duration": (["start", ADD, "--input", "1", "--delay", "-1"], "must be between 0 and 7,900 years"),
    "infinite duration": (["start", ADD, "--input", "1", "--timeout", "inf"], "must be between 0 and 7,900 years"),
    "short lease": (["worker", ADD, "--lease", "1ms"], "lease must be between 0.3 and 86400 seconds"),
    "no concurrency": (["worker", ADD, "--concurrency", "0"], "0 is not in the range x>=1"),
    "huge priority": (["start", ADD, "--input", "1", "--priority", str(2**40)], "priority must be a whole number"),
    "other version": (["start", ADD, "--input", "1", "--version", "9"], "no such file; name the database"),
    "bad tag": (["start", ADD, "--input", "1", "--tag", "x"], "'x' is not of the form name=value"),
    "bad status": (["list", "--status", "lost"], "'lost' is not one of 'pending'"),
    "bad time": (["list", "--since", "yesterday"], "neither a time such as"),
    "bad limit": (["list", "--limit", "0"], "0 is not in the range x>=1"),
    "no URL": (["start", ADD, "--input", "1", "--db", "runs.db"], "not a database URL"),
    "bad URL": (["list", "--db", "sqlite://[x/y.db"], "not a database URL"),
    "unknown scheme": (["list", "--db", "oracle://x"], "no backend for oracle://"),
    "a host": (["list", "--db", "sqlite://host/x.db"], "a file has no host"),
    "no folder": (["start", ADD, "--input", "1", "--db", "sqlite:///no/where.db"], "does not exist; create it first"),
    "a folder as file": (["start", ADD, "--input", "1", "--db", "sqlite:////tmp"], "a folder, not a file"),
}

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
sys.dont_write_bytecode = True
from perdure.cli.main import main
main(sys.argv[1:])
"""


def is_one_clear_line(told: Told, complaint: str) -> None:
    assert told.code == 2, told.err
    assert told.out == ""
    assert complaint in told.err
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert "Traceback" not in told.err


@pytest.mark.parametrize("words,complaint", WRONG.values(), ids=WRONG)
def test_bad_input(shell: Shell, words: list[str], complaint: str) -> None:
    is_one_clear_line(shell(*words), complaint)
    assert list(shell.folder.iterdir()) == []


@pytest.mark.parametrize("name", ["show", "history", "cancel", "retry", "purge"])
def test_an_unknown_run_id(shell: Shell, name: str) -> None:
    assert shell("migrate").code == 0
    is_one_clear_line(shell(name, "nobody"), "no run has the id 'nobody'")


def test_an_unknown_cursor(shell: Shell) -> None:
    assert shell("migrate").code == 0
    is_one_clear_line(shell("list", "--cursor", "nobody"), "the cursor 'nobody' is not the id of a run")


@pytest.mark.parametrize("words", DATABASE_COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("content", [b"hello " * 1000, b"SQLite format 3\0" + b"x" * 5000], ids=["text", "damaged"])
def test_not_a_database(shell: Shell, words: list[str], content: bytes) -> None:
    file = shell.folder / "runs.db"
    file.write_bytes(content)
    is_one_clear_line(shell(*words), "database")
    assert file.read_bytes() == content
    assert list(shell.folder.iterdir()) == [file]


@pytest.mark.parametrize("words", DATABASE_COMMANDS, ids=lambda words: words[0])
def test_the_database_of_another_program(shell: Shell, words: list[str]) -> None:
    connection = apsw.Connection(str(shell.folder / "runs.db"))
    connection.execute("create table run (id integer)")
    connection.close()
    is_one_clear_line(shell(*words), "another program")


@pytest.mark.parametrize("words", [*DATABASE_COMMANDS, ["migrate"]], ids=lambda words: words[0])
def test_a_newer_schema(shell: Shell, words: list[str]) -> None:
    assert shell("migrate").code == 0
    connection = apsw.Connection(str(shell.folder / "runs.db"))
    row = "insert into schema_migration (number, name, checksum, applied_at) values (?, ?, 'x', 0)"
    for number in range(len(migrations("sqlite")) + 1, 60):
        connection.execute(row, (number, "later"))
    connection.close()
    told = shell(*words)
    assert told.code == 2
    assert "migration" in told.err or "upgrade perdure" in told.err
    assert told.err.count("\n") == 1


def test_a_schema_that_is_not_made_yet(shell: Shell) -> None:
    (shell.folder / "runs.db").touch()
    is_one_clear_line(shell("list"), "run `perdure migrate`")
    is_one_clear_line(shell("cancel", "x"), "run `perdure migrate`")


@pytest.mark.parametrize("words", MAKING, ids=lambda words: words[0])
def test_a_read_only_folder(unprivileged: Unprivileged, words: list[str]) -> None:
    (unprivileged.folder / "place").mkdir()
    (unprivileged.folder / "place").chmod(0o555)
    env = {"PERDURE_DB": f"sqlite:///{unprivileged.folder}/place/runs.db"}
    child = unprivileged(sys.executable, "-m", "perdure", *words, env=env).finish()
    is_one_clear_line(Told(code=child.code, out=child.out, err=child.err), "is not writable")
    assert list((unprivileged.folder / "place").iterdir()) == []


def test_a_read_only_file(unprivileged: Unprivileged) -> None:
    env = {"PERDURE_DB": f"sqlite:///{unprivileged.folder}/runs.db"}
    assert unprivileged(sys.executable, "-m", "perdure", "migrate", env=env).finish().code == 0
    (unprivileged.folder / "runs.db").chmod(0o444)
    child = unprivileged(sys.executable, "-m", "perdure", *MAKING[2], env=env).finish()
    is_one_clear_line(Told(code=child.code, out=child.out, err=child.err), "read-only for this user")
    assert unprivileged(sys.executable, "-m", "perdure", "list", env=env).finish().code == 0


@pytest.mark.parametrize("words", [*MAKING, ["migrate"]], ids=lambda words: words[0])
def test_a_full_disk(shell: Shell, words: list[str]) -> None:
    env = {"PERDURE_DB": shell.db}
    child = shell.spawn(sys.executable, "-c", LIMITED, *words, env=env, folder=shell.folder, measured=False).finish()
    is_one_clear_line(Told(code=child.code, out=child.out, err=child.err), "database file cannot be used now")
    assert list(shell.folder.iterdir()) == []


def test_a_name_that_is_not_text(shell: Shell) -> None:
    child = shell.spawn(sys.executable, "-m", "perdure", "show", os.fsdecode(b"\xff\xfe"), folder=shell.folder).finish()
    assert child.code == 2
    assert "Traceback" not in child.err


def test_two_workflows_of_one_name(shell: Shell) -> None:
    body = "import perdure\n@perdure.workflow(name='same')\nasync def {}() -> None: ...\n"
    Path(shell.folder / "both.py").write_text(body.format("one") + body.format("two"))
    is_one_clear_line(shell("worker", "both.py"), "two workflows are named 'same'")
    assert not (shell.folder / "runs.db").exists()


def test_a_time_limit_and_a_password_are_not_mixed_up(shell: Shell) -> None:
    told = shell("list", "--db", "oracle://me:secret@host/db")
    is_one_clear_line(told, "no backend for oracle://")
    assert "secret" not in told.err
