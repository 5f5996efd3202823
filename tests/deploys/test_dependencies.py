"""Runs whose version stands on what is not installed any more: parked with what is missing, until it is there."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from perdure import Engine, Run, Status
from tests.deploys.place import Place, end, until, until_recorded
from tests.hosting.releases import kept
from tests.hosting.wheels import index, install, make_wheel, repack_needs
from tests.process import Spawner

MISSING = "version: fulfil@1.0.0 needs cart (recorded 1.0), which is not installed. "


def shop(label: str, head: str, said: str) -> str:
    """Return a shop whose run waits for a second between two steps."""
    return f"""
import asyncio, sys
import perdure
{head}

@perdure.step
async def say() -> str:
    return {said}

@perdure.workflow(version="{label}")
async def fulfil() -> list[str]:
    first = await say()
    await asyncio.sleep(1)
    return [first, await say(), sys.prefix]
"""


OLD = shop("1.0.0", "import cart", "cart.V")
NEW = shop("2.0.0", "", "'2.0.0'")


class Machine(Place):
    """A place where distributions are installed beside those of the tests."""

    @property
    def site(self) -> Path:
        return self.folder / "site-packages"

    def install(self, wheel: Path) -> None:
        install(self.site, wheel)

    def uninstall(self) -> None:
        shutil.rmtree(self.site)


@pytest.fixture
def machine(tmp_path: Path, tmp_db: str, spawn: Spawner, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return Machine(tmp_path, tmp_db, spawn)


async def begun(engine: Engine, machine: Machine) -> Run[object]:
    """Return a run that began on the old code and waits; its worker is gone, with its code and what it stood on."""
    worker = await asyncio.to_thread(machine.worker, "old", OLD)
    run: Run[object] = await engine.start("fulfil", id="r")
    await until_recorded(run, "step_completed")
    await asyncio.to_thread(end, worker)
    machine.forget("old")
    machine.uninstall()
    return run


async def test_a_missing_distribution_parks_the_run_until_it_is_installed(
    machine: Machine, tmp_path: Path, tmp_db: str
) -> None:
    wheel = make_wheel(tmp_path, "cart", "1.0", "V = 'cart 1.0'")
    machine.install(wheel)
    async with Engine(tmp_db, worker=False) as engine:
        run = await begun(engine, machine)
        worker = await asyncio.to_thread(machine.worker, "new", NEW)
        info = await until(run, Status.PARKED)
        assert info.detail == (
            f'{MISSING}Its runs are parked. Allow environments="uv", install it, or upgrade them.'
        )  # fmt: skip
        assert (await engine.run("fulfil", id="new"))[0] == "2.0.0"
        machine.install(wheel)
        await until(run, Status.COMPLETED)
        assert (await run.result())[:2] == ["cart 1.0", "cart 1.0"]  # type: ignore[index]
        await asyncio.to_thread(end, worker)


async def test_what_cannot_be_built_parks_the_run_until_it_can(
    machine: Machine, tmp_path: Path, tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    repack_needs(wheels, tmp_db)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    machine.install(make_wheel(tmp_path, "cart", "1.0", "V = 'cart 1.0'"))
    async with Engine(tmp_db, worker=False) as engine:
        run = await begun(engine, machine)
        worker = await asyncio.to_thread(machine.worker, "new", NEW, "environments=uv")
        info = await until(run, Status.PARKED)
        assert str(info.detail).startswith(f"{MISSING}No environment could be made for it: ")
        assert "there is no version of cart==1.0" in str(info.detail)
        make_wheel(wheels, "cart", "1.0", "V = 'cart 1.0, built'")
        await until(run, Status.COMPLETED)
        assert (await run.result())[:2] == ["cart 1.0", "cart 1.0, built"]  # type: ignore[index]
        await asyncio.to_thread(end, worker)


async def test_an_environment_is_rebuilt_offline_from_the_cache(
    machine: Machine, tmp_path: Path, tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    repack_needs(wheels, tmp_db)
    machine.install(make_wheel(wheels, "cart", "1.0", "V = 'cart 1.0'"))
    environments = tmp_path / "cache" / "perdure" / "environments"
    async with Engine(tmp_db, worker=False) as engine:
        with index(wheels) as url:
            monkeypatch.setenv("UV_DEFAULT_INDEX", url)
            run = await begun(engine, machine)
            other = await engine.start("fulfil", id="other", version="1.0.0")
            worker = await asyncio.to_thread(machine.worker, "new", NEW, "environments=uv")
            await until(run, Status.COMPLETED)
            await until(other, Status.COMPLETED)
            await asyncio.to_thread(end, worker)
        (name,) = kept(environments)
        built = environments / name
        assert (await run.result())[2] == str(built)  # type: ignore[index]
        shutil.rmtree(environments)  # and the index is gone
        run = await engine.start("fulfil", id="later", version="1.0.0")
        worker = await asyncio.to_thread(machine.worker, "new", NEW, "environments=uv")
        await until(run, Status.COMPLETED)
        assert await run.result() == ["cart 1.0", "cart 1.0", str(built)]
        await asyncio.to_thread(end, worker)
