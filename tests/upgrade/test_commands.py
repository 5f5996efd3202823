"""``perdure upgrade`` and ``perdure fork``, and what code without an event loop sees of both."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import perdure
from perdure.cli import main
from tests.upgrade.deployment import OLD, STEPS, Application, begun, sound

RENAMED = OLD.replace("charge(", "debit(")


def made(shop: Application, *ids: str) -> None:
    """Let runs of 1.3.0 come to their pause; 1.4.0 calls a step by another name."""

    async def begin() -> None:
        async with shop.client() as engine:
            await begun(shop, engine, *ids)

    shop.version("1.3.0", OLD)
    shop.version("1.4.0", RENAMED, steps=STEPS.replace("def charge", "def debit"))
    asyncio.run(begin())


def test_a_plan_is_made_read_applied_and_reverted(
    shop: Application, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(shop, "o-1", "o-2")
    db = ("--db", shop.url)
    selector = ("--workflow", "order", "--from", "1.3.0", "--limit", "10", "--to", "1.4.0")
    assert main.run(["upgrade", "plan", *selector, "--json", *db]) == 1
    plan = json.loads(capsys.readouterr().out)
    assert [run["verdict"]["kind"] for run in plan["runs"]] == ["DIVERGES", "DIVERGES"]
    assert main.run(["upgrade", "apply", plan["id"], "--reason", "renamed", *db]) == 1
    assert "refused: " in capsys.readouterr().out
    names = tmp_path / "names"
    names.write_text("charge=debit\n\n")
    wanted = ("upgrade", "apply", plan["id"], "--reason", "renamed", "--map", str(names), "--actor", "ana")
    assert main.run([*wanted, *db]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "o-1: applied: 1.3.0 → 1.4.0: SAFE", "o-2: applied: 1.3.0 → 1.4.0: SAFE"
    ]  # fmt: skip
    assert main.run([*wanted, "--json", *db]) == 0
    assert [json.loads(line)["outcome"] for line in capsys.readouterr().out.splitlines()] == ["done", "done"]
    assert main.run(["upgrade", "revert", "o-1", "--reason", "a mistake", *db]) == 0
    assert capsys.readouterr().out == "o-1: applied: 1.4.0 → 1.3.0 (reverted)\n"
    assert main.run(["upgrade", "status", plan["id"], *db]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"plan {plan['id']}: order to 1.4.0, by ")
    assert "reverted" in told
    sound(shop)


@pytest.mark.parametrize(
    "words",
    [
        ("upgrade", "plan", "--to", "1.4.0"),
        ("upgrade", "plan", "--workflow", "order", "--to", "1.4.0"),
        ("upgrade", "apply", "5f2a9c1e"),
        ("upgrade", "apply", "5f2a9c1e", "--reason", "x"),
        ("upgrade", "apply", "5f2a9c1e", "--reason", "x", "--force"),
        ("upgrade", "status", "5f2a9c1e"),
        ("upgrade", "revert", "o-9", "--reason", "x"),
        ("fork", "o-9"),
    ],
)
def test_50_what_cannot_be_is_a_usage_error(
    shop: Application, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.version("1.4.0", OLD)
    assert main.run([*words, "--db", shop.url]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_line_of_names_that_cannot_be_read_is_named(
    shop: Application, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = tmp_path / "names"
    names.write_text("charge=debit\npack\n")
    assert main.run(["upgrade", "apply", "p", "--reason", "x", "--map", str(names), "--db", shop.url]) == 2
    assert f"{names}, line 2: not of the form old=new" in capsys.readouterr().err


def test_a_fork_is_made_and_its_id_is_printed(shop: Application, capsys: pytest.CaptureFixture[str]) -> None:
    made(shop, "o-1")
    assert main.run(["fork", "o-1", "--from-step", "0", "--id", "o-2", "--to", "1.4.0", "--db", shop.url]) == 0
    assert capsys.readouterr().out == "o-2\n"
    assert main.run(["fork", "o-1", "--to", "1.4.0", "--db", shop.url]) == 2
    assert "DIVERGES at 0" in capsys.readouterr().err
    sound(shop)


def test_code_without_a_loop_upgrades_and_forks(shop: Application) -> None:
    made(shop, "o-1")
    with perdure.SyncEngine(shop.url, worker=False) as engine:
        plan = engine.upgrades.plan(ids=["o-1"], to="1.4.0")
        (result,) = engine.upgrades.apply(plan, reason="renamed", map={"charge": "debit"}, wait="1s")
        assert result.outcome == "applied"
        assert engine.upgrades.status(plan.id).runs[0].state == "applied"
        assert engine.upgrades.revert("o-1", reason="a mistake").outcome == "applied"
        fork = engine.fork("o-1", id="o-2")
        assert (fork.id, fork.info().version) == ("o-2", "1.3.0")
    sound(shop)
