"""Every kind of damage to stored data is found, and named as what it is."""

from __future__ import annotations

import ast
import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import perdure.verify
from perdure.cli import main
from perdure.errors import PerdureError, StoreCorrupt
from perdure.model.event import CHAIN_START, Draft, sealed
from perdure.verify.database import verify
from perdure.verify.examination import RULES
from tests.verify import test_versions
from tests.verify.workload import fill

PACKAGE = Path(perdure.verify.__file__).parent
COLUMNS = "type, at, op, kind, name, attempt, state, digest, detail, input, payload"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a file with one of everything, checkpointed into one piece."""
    path = tmp_path_factory.mktemp("verify") / "sound.db"
    asyncio.run(fill(f"sqlite:///{path}"))
    with sqlite3.connect(path) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    return path


@pytest.fixture
def damage(sound: Path, tmp_path: Path) -> Callable[..., set[str]]:
    """Give a function that changes a copy by raw SQL and returns the rules that are found broken then."""

    def apply(script: str, *, rechain: str | None = None) -> set[str]:
        path = tmp_path / "copy.db"
        shutil.copy(sound, path)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("pragma ignore_check_constraints = on")
        for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            connection.execute(f"drop trigger {name}")
        connection.executescript(script)
        if rechain is not None:
            seal_again(connection, rechain)
        connection.close()
        return {finding.rule for finding in verify(f"sqlite:///{path}").findings}

    return apply


def seal_again(connection: sqlite3.Connection, run_id: str) -> None:
    """Make the chain of a changed log close again, as a careful forger or a faulty engine would."""
    (no,) = connection.execute("select no from run where id = ?", (run_id,)).fetchone()
    chain = CHAIN_START
    rows = connection.execute(f"select seq, epoch, {COLUMNS} from event_log where run_no = ? order by seq", (no,))
    for seq, epoch, *columns in rows.fetchall():
        draft = Draft(*columns)
        chain = sealed(run_id, seq, draft, draft.at, epoch, 0, chain).chain
        connection.execute("update event_log set chain = ? where run_no = ? and seq = ?", (chain, no, seq))


def test_a_sound_file_has_no_findings(sound: Path) -> None:
    report = verify(f"sqlite:///{sound}", ["done", "purged", "pending"])
    assert report.findings == []
    assert report.runs == 8
    assert report.events > 30


OF = "run_no = (select no from run where id = '{}')"
DONE, FAILED, CANCELLED, WAITING, REOPENED, OWNED = map(
    OF.format, ("done", "failed", "cancelled", "waiting", "reopened", "owned")
)
LAST = "(select max(seq) from event_log where {})"
# What is done, which run's chain is closed again afterwards, and the rules that must be named: no more, no fewer.
DAMAGE: dict[str, tuple[str, str | None, set[str]]] = {
    "an event is lost from the middle": (
        f"delete from event_log where {DONE} and type = 'timer_fired';", None, {"sequence", "chain"},
    ),
    "an event is lost and the chain is closed again": (
        f"delete from event_log where {DONE} and type = 'timer_fired';", "done", {"sequence"},
    ),
    "a log is lost": (f"delete from event_log where {FAILED};", None, {"sequence", "status"}),
    "a payload is changed": (
        f"update event_log set payload = x'22' where {DONE} and type = 'step_completed';", None, {"chain"},
    ),
    "an error is moved to the input": (
        f"update event_log set input = payload, payload = input where {FAILED} and type = 'step_failed';",
        None, {"chain"},
    ),
    "a detail is no JSON": (
        f"update event_log set detail = x'ff' where {DONE} and type = 'run_completed';", "done", {"detail"},
    ),
    "time goes back": (
        f"update event_log set at = at - 3600000000 where {DONE} and type = 'checkpoint_reached';", "done", {"time"},
    ),
    "the row is older than its log": ("update run set created_at = created_at - 1 where id = 'done';", None, {"time"}),
    "a write of an old owner": (
        (f"update event_log set epoch = 1 where {CANCELLED} and type = 'timer_fired' or {CANCELLED} and"
        " type = 'cancel_requested';"), "cancelled", {"epoch"},
    ),
    "an epoch is left out": (
        (f"update event_log set epoch = 9 where {CANCELLED} and type = 'run_cancelled';"
        " update run set epoch = 9 where id = 'cancelled';"), "cancelled", {"epoch"},
    ),
    "a step has two results": (
        (f"update event_log set op = (select op from event_log where {REOPENED} and name = 'reserve'), name = 'reserve'"
        f", attempt = 1 where {REOPENED} and type = 'step_completed' and name = 'charge';"), "reopened", {"result"},
    ),
    "an operation changes its name": (
        f"update event_log set name = 'other' where {DONE} and type = 'step_attempt_failed' and attempt = 2;", "done",
        {"operation"},
    ),
    "a result of no operation": (
        f"update event_log set op = null where {DONE} and type = 'timer_fired';", "done", {"operation"},
    ),
    "an attempt is missing": (
        f"update event_log set attempt = 7 where {DONE} and name = 'unsteady' and type = 'step_completed';", "done",
        {"attempt"},
    ),
    "an attempt before its time": (
        (f"update event_log set detail = cast('{{\"next_at\": 4000000000000000}}' as blob) where {DONE} and"
        " type = 'step_attempt_failed' and attempt = 2;"), "done", {"attempt"},
    ),
    "a second intent": (
        (f"update event_log set type = 'step_intent', payload = null where {DONE} and name = 'notify' and"
        " type = 'step_completed';"), "done", {"attempt"},
    ),
    "an illegal transition": (
        (f"update event_log set type = 'run_resumed', state = 'paused>pending' where {WAITING} and type = 'run_waiting'"
        "; update run set status = 'pending' where id = 'waiting';"), "waiting", {"transition"},
    ),
    "an event says another state": (
        f"update event_log set state = 'running>failed' where {DONE} and type = 'run_completed';", "done",
        {"transition"},
    ),
    "an end is followed by something": (
        (f"insert into event_log select run_no, seq + 1, 'timer_fired', '99', 'timer', 'sleep', 0, at, epoch, commit_id"
        f", null, null, null, null, null, chain from event_log where {DONE} and seq = {LAST.format(DONE)};"), "done",
        {"ended"},
    ),
    "the row says another state": ("update run set status = 'failed' where id = 'done';", None, {"status"}),
    "the row says another epoch": ("update run set epoch = epoch + 1 where id = 'done';", None, {"row epoch"}),
    "the row has an owner": ("update run set owner = 'ghost' where id = 'done';", None, {"owner"}),
    "an ended run would be claimed": ("update run set wake_at = 1 where id = 'done';", None, {"due"}),
    "a waiting run is never claimed": ("update run set wake_at = null where id = 'waiting';", None, {"due"}),
    "a timer is early": ("update run set wake_at = wake_at - 1 where id = 'waiting';", None, {"due"}),
    "a message is lost": ("update run set inbox_n = inbox_n + 1 where id = 'cancelled';", None, {"inbox"}),
    "a message is there twice": (
        "insert into inbox values ('cancelled', 1, 'cancel', 1, null);", None, {"inbox"},
    ),
    "a tag is lost": ("delete from tag where run_id = 'done';", None, {"tags"}),
    "a tag too many": ("insert into tag values ('tenant', 'y', 'done');", None, {"tags"}),
    "a run that is there has a tombstone": (
        "insert into request select 'done', workflow, input_digest, status, purged_at, actor, reason from request;",
        None, {"tombstone"},
    ),
    "a tombstone of a run that had not ended": ("update request set status = 'running';", None, {"tombstone"}),
    "a log of no run": (f"update event_log set run_no = 99 where {FAILED};", None, {"sequence", "status", "stray"}),
    "a message to no run": ("insert into inbox values ('nobody', 1, 'cancel', 1, null);", None, {"stray"}),
    "an owned run has no slot": ("delete from slot where run_id = 'owned';", None, {"slot"}),
    "a slot of another epoch": ("update slot set epoch = epoch - 1 where run_id = 'owned';", None, {"slot"}),
    "a line is lost": ("delete from lane;", None, {"lane"}),
    "a limit is set by hand": ("update queue set concurrency = 2 where name = 'limited';", None, {"queue change"}),
    "a change of a queue is lost": ("delete from queue_change where queue = 'limited';", None, {"queue change"}),
    "a change of a queue has another number": ("update queue_change set n = n + 1;", None, {"queue change"}),
    "more runs are owned than the limit says": (
        (f"update run set queue = 'limited' where id = 'done';"
        f"update event_log set at = (select max(at) - 1 from event_log where {DONE}) where {OWNED};"
        f"update run set created_at = (select max(at) - 1 from event_log where {DONE}) where id = 'owned';"), "owned",
        {"limit"},
    ),
    "more runs are claimed than the rate says": (
        ("update run set queue = 'limited' where id = 'failed';"
        "update queue set rate_limit = 1, rate_us = 3600000000 where name = 'limited';"
        "update queue_change set change = json_insert(change, '$.rate_limit', json('[null, 1]'),"
        " '$.rate_us', json('[null, 3600000000]'));"), None, {"rate"},
    ),
    "a slot of no run": ("update slot set run_id = 'nobody';", None, {"slot", "stray"}),
    "a tag of no run": ("insert into tag values ('a', 'b', 'nobody');", None, {"stray"}),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_named(name: str, damage: Callable[..., set[str]]) -> None:
    script, rechain, rules = DAMAGE[name]
    assert damage(script, rechain=rechain) == rules


ELSEWHERE = {"acknowledged", "file"}
"""Rules that need more than changed rows to be broken: see the two tests below."""


def test_every_rule_has_a_damage_that_it_alone_finds() -> None:
    expected = [rules for _, _, rules in DAMAGE.values()] + [rules for _, rules in test_versions.DAMAGE.values()]
    alone = {next(iter(rules)) for rules in expected if len(rules) == 1}
    assert alone | ELSEWHERE == rules_of(PACKAGE)
    assert len(RULES) == 12


def rules_of(package: Path) -> set[str]:
    """Return the rules that the code can name as broken."""
    calls = [
        node
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Finding", "_found")
    ]
    named = [call.args[0].value for call in calls if call.args and isinstance(call.args[0], ast.Constant)]
    assert len(named) == len(calls) - 1, "only `_found` passes a name on"
    return {str(name) for name in named}


def test_an_acknowledged_run_that_is_not_there_is_found(sound: Path) -> None:
    findings = verify(f"sqlite:///{sound}", ["done", "never-heard-of"]).findings
    assert [(finding.rule, finding.run_id) for finding in findings] == [("acknowledged", "never-heard-of")]


def test_a_torn_file_is_a_finding_and_not_a_crash(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "torn.db"
    data = bytearray(sound.read_bytes())
    page = data.index(b"step_completed", 16 * 4096) // 4096  # one of the log, and not of the schema
    data[page * 4096 : (page + 1) * 4096] = bytes(4096)
    path.write_bytes(data)
    assert "file" in {finding.rule for finding in verify(f"sqlite:///{path}").findings}


def test_a_file_whose_schema_is_torn_is_an_error_that_says_so(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "torn.db"
    data = bytearray(sound.read_bytes())
    page = data.index(b"version_change_no_update before update") // 4096
    data[page * 4096 : (page + 1) * 4096] = bytes(4096)
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match="malformed"):
        verify(f"sqlite:///{path}")


def test_the_command_exits_with_1_and_lists_what_it_found(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["verify", "--db", f"sqlite:///{sound}"]) == 0
    assert "nothing is broken" in capsys.readouterr().out
    acks = tmp_path / "acks"
    acks.write_text("done\nlost\n")
    assert main.run(["verify", "--db", f"sqlite:///{sound}", "--acks", str(acks)]) == 1
    assert "acknowledged: run lost" in capsys.readouterr().out
    assert main.run(["verify", "--json", "--db", f"sqlite:///{sound}", "--acks", str(acks)]) == 1
    assert '"rule":"acknowledged"' in capsys.readouterr().out.replace(" ", "")


@pytest.mark.parametrize("what", ["missing", "text", "foreign", "newer"])
def test_what_cannot_be_verified_is_an_error_of_the_environment(
    what: str, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.db"
    if what == "text":
        path.write_text("not a database, however long one reads in it\n" * 100)
    elif what != "missing":
        if what == "newer":
            shutil.copy(sound, path)
        with sqlite3.connect(path) as connection:
            newer = "insert into schema_migration values (999, 'later', '', 0)"
            connection.execute("create table theirs (a)" if what == "foreign" else newer)
        connection.close()
    with pytest.raises(PerdureError):
        verify(f"sqlite:///{path}")
    assert main.run(["verify", "--db", f"sqlite:///{path}"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
