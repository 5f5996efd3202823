"""The command line on runs that wait for steps elsewhere, and on those that execute them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import Status
from perdure.cli import main
from tests.elsewhere.flows import broken, encode, engine_on, many, one, seen, until

pytestmark = pytest.mark.sqlite_only


async def prepare(url: str) -> None:
    """Leave behind a run that has ended, one that has failed, and one that waits: its step is nobody's yet."""
    broken.add("bad")
    async with engine_on(url) as engine:
        assert await (await engine.start(many, ["M", "N"], id="good")).result(timeout=20) == ["M!", "N!"]
        await until(await engine.start(one, "bad", id="bad"), Status.FAILED)
    async with engine_on(url, queues=["default"]) as engine:
        run = await engine.start(one, "W", id="waits")
        await seen(run, "step_sent")
        await until(engine.get("waits:0"), Status.PENDING)


async def go_on(url: str) -> str:
    async with engine_on(url) as engine:
        result: str = await engine.get("waits").result(timeout=20)
        return result


def test_commands_and_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, other = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    asyncio.run(prepare(url))

    def told(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main.run(list(words)) == code, capsys.readouterr()
        return capsys.readouterr().out

    assert "perdure.run=waits" in told("list", "--db", url)
    waits = told("show", "waits", "--db", url)
    assert "executed by run waits:0 on queue slow" in waits
    assert "slow" in told("show", "waits:0", "--db", url)
    assert "step_sent" in told("history", "waits", "--db", url)
    assert encode.name in told("history", "bad:0", "--db", url)
    told("verify", "--db", url)
    assert "from queue 'slow': 1 due" in told("doctor", "--db", url, code=1)
    told("copy", "--from", url, "--to", other)
    told("verify", "--db", other)
    assert told("show", "waits", "--db", other) == waits
    assert asyncio.run(go_on(other)) == "W!"
    assert asyncio.run(go_on(url)) == "W!"
