"""``perdure hosts`` and ``perdure versions host-env``."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest

from perdure import Engine, Status
from perdure.errors import InvalidValue, UnknownVersion
from tests.cli.conftest import Shell
from tests.deploys.place import Place, end, until
from tests.deploys.test_parking import begun, shop
from tests.process import Child, Spawner

NEEDS = "import os\nQUEUE = os.environ['OLD_QUEUE_URL']\n"


async def the_doctor_tells_it_apart(shell: Shell, worker: Child, host: int) -> None:
    """See that `doctor` lists a version host as one, and what it carries."""
    machine = os.uname().nodename
    own, hosted = f"{machine}:{worker.pid}", f"{machine}:{host}"
    told = await asyncio.to_thread(shell, "doctor")
    assert re.search(rf"^{hosted} +{own} +live ", told.out, re.MULTILINE), told.out
    assert re.search(rf"^{own} +live ", told.out, re.MULTILINE), told.out
    assert re.search(rf"^fulfil@1\.0\.0 .* {hosted} \(host\)", told.out, re.MULTILINE), told.out
    assert re.search(rf"^fulfil@2\.0\.0 .* {own}  ", told.out, re.MULTILINE), told.out
    found = json.loads((await asyncio.to_thread(shell, "doctor", "--json")).out)["health"]
    uses = {one["label"]: (one["workers"], one["hosts"]) for one in found["versions"]}
    assert uses == {"1.0.0": ([], [hosted]), "2.0.0": ([own], [])}
    ids = {one["name"]: one["id"] for one in found["workers"]}
    assert {one["name"]: one["parent"] for one in found["workers"] if one["state"] == "live"} == {
        own: None, hosted: ids[own]
    }  # fmt: skip


async def test_what_old_code_needs_is_set_and_its_parked_runs_go_on(
    shell: Shell, tmp_path: Path, spawn: Spawner
) -> None:
    url = shell.db
    place = Place(tmp_path, url, spawn)
    async with Engine(url, worker=False) as engine:
        run = await begun(engine, place, shop("1.0.0", NEEDS), OLD_QUEUE_URL="x")
        worker = await asyncio.to_thread(place.worker, "new", shop("2.0.0"))
        await until(run, Status.PARKED)
        assert await engine.hosts.list() == ()
        words = ("versions", "host-env", "fulfil@1.0.0", "--set", "OLD_QUEUE_URL=amqp://old", "--reason", "moved")
        told = await asyncio.to_thread(shell, *words)
        assert (told.code, told.out) == (0, "OLD_QUEUE_URL=amqp://old\n")
        await until(run, Status.COMPLETED)
        (host,) = await engine.hosts.list()
        assert (host.workflows, host.machine, host.pid != worker.pid) == (("fulfil",), os.uname().nodename, True)
        shown = await asyncio.to_thread(shell, "hosts", "list", "--json")
        assert f'"id":"{host.id}"' in shown.out.replace(": ", ":")
        await the_doctor_tells_it_apart(shell, worker, host.pid)
        (set_,) = [change for change in await engine.versions.log("fulfil") if change.action == "host_env_set"]
        assert set_.reason == "moved"
        stopped = await asyncio.to_thread(shell, "hosts", "stop", host.id)
        assert stopped.out == f"{host.id}: asked to end\n"
        async with asyncio.timeout(40):
            while await engine.hosts.list():
                await asyncio.sleep(0.05)
        again = await asyncio.to_thread(shell, "hosts", "stop", host.id)
        assert (again.code, again.out) == (2, "")
        await asyncio.to_thread(end, worker)


async def test_variables_are_checked_merged_and_taken_away(tmp_db: str, tmp_path: Path, spawn: Spawner) -> None:
    place = Place(tmp_path, tmp_db, spawn)
    await asyncio.to_thread(lambda: end(place.worker("old", shop("1.0.0"))))
    async with Engine(tmp_db, worker=False) as engine:
        for variables in ({"A B": "x"}, {"A": "x\0"}, {"": "x"}):
            with pytest.raises(InvalidValue):
                await engine.hosts.set_environment("fulfil", "1.0.0", variables, reason="r")
        with pytest.raises(UnknownVersion):
            await engine.hosts.set_environment("fulfil", "9.0.0", {"A": "x"}, reason="r")
        with pytest.raises(InvalidValue, match="reason"):
            await engine.hosts.set_environment("fulfil", "1.0.0", {"A": "x"}, reason=" ")
        assert await engine.hosts.set_environment("fulfil", "1.0.0", {"A": "1", "B": "2"}, reason="r") == {
            "A": "1", "B": "2"
        }  # fmt: skip
        assert await engine.hosts.set_environment("fulfil", "1.0.0", {"A": None, "C": "3"}, reason="r") == {
            "B": "2", "C": "3"
        }  # fmt: skip
        assert await engine.hosts.environment("fulfil", "1.0.0") == {"B": "2", "C": "3"}
