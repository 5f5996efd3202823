"""Hosts get an environment of their own where the worker's is not what was recorded: built by uv, checked, and kept."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tomllib
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure.errors import EnvironmentMismatch
from perdure.runtime.hosts import building, uv
from perdure.runtime.hosts.building import Builder, Recipe, is_usable, python_of, recipe
from perdure.runtime.hosts.environments import Environments
from perdure.runtime.hosts.job import TRY_LATER, Job
from perdure.runtime.hosts.process import HostProcess, Spawner
from perdure.runtime.hosts.uv import UvFailed, run_program
from perdure.version.dependency import Lock
from tests.hosting.releases import answer, flow, kept, make_database, make_job, told
from tests.hosting.wheels import NEEDS, install, make_wheel, repack_needs, sha256


@pytest.fixture
def wheels(tmp_path: Path, tmp_db: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the index there is."""
    folder = tmp_path / "wheels"
    repack_needs(folder, tmp_db)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return folder


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "environments")


def lock(name: str, text: str) -> Lock:
    return Lock(name, text, hashlib.sha256(text.encode()).hexdigest())


async def wanted(builder: Builder, **fields: object) -> Recipe:
    job = Job("71", "", {}, [], [], "", "sqlite:///x.db", {})
    return recipe(msgspec.structs.replace(job, **fields), await builder.interpreter(""))


async def seen(environment: Path, code: str) -> str:
    """Return what code prints in an environment."""
    return (await run_program(environment, {}, python_of(environment), "-c", code)).strip()


async def test_it_holds_what_was_recorded_and_nothing_of_the_workers_own(wheels: Path, builder: Builder) -> None:
    make_wheel(wheels, "cart", "1.0", "V = 1")
    make_wheel(wheels, "cart", "2.0", "V = 2")
    environment = await builder.build(await wanted(builder, distributions={"cart": "1.0", "perdure": "0.0.1"}))
    assert await seen(environment, "import cart, perdure; print(cart.V)") == "1"
    code = "from importlib.metadata import distributions as d; print(sorted((x.name, x.version) for x in d()))"
    needs = [(name, version(name)) for name in NEEDS]
    assert await seen(environment, code) == str(sorted([("cart", "1.0"), *needs]))
    with pytest.raises(UvFailed, match="No module named 'pytest'"):
        await seen(environment, "import pytest")


async def test_it_is_made_once_also_by_several_at_once(wheels: Path, builder: Builder, tmp_path: Path) -> None:
    make_wheel(wheels, "cart", "1.0", "V = 1")
    order = await wanted(builder, distributions={"cart": "1.0"})
    others = [Builder(tmp_path / "environments") for _ in range(2)]
    built = await asyncio.gather(*(one.build(order) for one in (builder, *others)))
    assert len(set(built)) == 1
    assert list((tmp_path / "environments").iterdir()) == [built[0]]
    made_at = built[0].stat().st_ctime_ns
    assert await builder.build(order) == built[0]
    assert built[0].stat().st_ctime_ns == made_at
    python_of(built[0]).unlink()
    assert is_usable(await builder.build(order))  # its interpreter was gone
    assert list((tmp_path / "environments").iterdir()) == [built[0]]


async def test_what_killed_builders_left_is_removed(wheels: Path, builder: Builder, tmp_path: Path) -> None:
    left = [tmp_path / "environments" / f".building-{age}" for age in ("old", "new")]
    for folder in left:
        (folder / "env").mkdir(parents=True)
    os.utime(left[0], (1, 1))
    built = await builder.build(await wanted(builder))
    assert set((tmp_path / "environments").iterdir()) == {built, left[1]}


@pytest.mark.parametrize("form", ["requirements.txt", "uv.lock", "pylock.toml", "poetry.lock", "Pipfile.lock"])
async def test_files_are_checked_against_the_hashes_of_the_lock(wheels: Path, builder: Builder, form: str) -> None:
    wheel = make_wheel(wheels, "cart", "1.0", "V = 1")
    digest = sha256(wheel)
    uv_lock = (
        'version = 1\nrequires-python = ">=3.11"\n[[package]]\nname = "cart"\nversion = "1.0"\n'
        'source = {{ registry = "https://index.example/simple" }}\n'
        'wheels = [{{ url = "https://index.example/cart-1.0-py3-none-any.whl", hash = "{digest}" }}]\n'
        '[[package]]\nname = "app"\nversion = "1"\nsource = {{ virtual = "." }}\ndependencies = [{{ name = "cart" }}]\n'
    )
    texts = {
        "requirements.txt": "cart==1.0 \\\n    --hash={digest}\n",
        "uv.lock": uv_lock,
        "pylock.toml": (
            'lock-version = "1.0"\n[[packages]]\nname = "cart"\nversion = "1.0"\n'
            'wheels = [{{ name = "cart-1.0-py3-none-any.whl", hashes = {{ sha256 = "{bare}" }} }}]\n'
        ),
        "poetry.lock": '[[package]]\nname = "cart"\nversion = "1.0"\nfiles = [{{ file = "c", hash = "{digest}" }}]\n',
        "Pipfile.lock": '{{"default": {{"cart": {{"version": "==1.0", "hashes": ["{digest}"]}}}}}}',
    }
    for value in (digest, "sha256:" + "0" * 64):
        text = texts[form].format(digest=value, bare=value.removeprefix("sha256:"))
        order = await wanted(builder, distributions={"cart": "1.0"}, lock=lock(form, text))
        if value == digest:
            assert await seen(await builder.build(order), "import cart; print(cart.V)") == "1"
        else:
            with pytest.raises(UvFailed, match=r"[Hh]ash"):
                await builder.build(order)


async def test_what_only_the_lock_names_is_there_too(wheels: Path, builder: Builder) -> None:
    """A plugin that is loaded by its name is reached by no import."""
    make_wheel(wheels, "cart", "1.0", "V = 1")
    make_wheel(wheels, "plug", "3.0", "V = 3")
    text = "cart==0.9\nplug==3.0\nother==1 ; python_version < '3'\nperdure==0.0.1\n-e .\n"
    environment = await builder.build(
        await wanted(builder, distributions={"cart": "1.0"}, lock=lock("requirements.txt", text))
    )
    assert await seen(environment, "import cart, plug; print(cart.V, plug.V)") == "1 3"


async def test_an_altered_lock_is_refused(wheels: Path, builder: Builder) -> None:
    held = Lock("requirements.txt", "cart==1.0\n", "0" * 64)
    with pytest.raises(UvFailed, match=r"the stored requirements\.txt does not match 00000000"):
        await builder.build(await wanted(builder, distributions={"cart": "1.0"}, lock=held))


async def test_old_needs_of_the_engine_that_it_cannot_work_with(wheels: Path, builder: Builder) -> None:
    make_wheel(wheels, "msgspec", "0.1", "raise ImportError('too old')")
    with pytest.raises(UvFailed, match=r"this release of perdure does not work with what was recorded: .*too old"):
        await builder.build(await wanted(builder, distributions={"msgspec": "0.1"}))


def test_what_the_engine_needs_is_what_it_says_it_needs() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert sorted(re.split(r"[^\w.-]", one)[0] for one in project["dependencies"]) == sorted(building.NEEDS)
    for backend, (name, extra, _) in building.DRIVERS.items():
        assert [one.split(">")[0] for one in project["optional-dependencies"][backend]] == [f"{name}[{extra}]"]


@pytest.mark.parametrize("scheme, driver", [("postgresql", "psycopg[binary]"), ("mariadb+x", "PyMySQL[rsa]")])
async def test_the_driver_of_the_database_is_needed_too(builder: Builder, scheme: str, driver: str) -> None:
    name = driver.partition("[")[0]
    order = await wanted(builder, url=f"{scheme}://host/db")
    assert f"{driver}=={version(name)}" in order.needs
    order = await wanted(builder, url=f"{scheme}://host/db", distributions={name.lower(): "1.0", "click": "8.0"})
    assert driver in order.needs  # the recorded version, and what the extra brings
    assert not any(one.startswith("click") for one in order.needs)
    order = await wanted(builder, url="sqlite:///x.db", settings={"codecs": ["zstd", "json"]})
    assert {one.partition("==")[0] for one in order.needs} - {"backports.zstd"} == set(NEEDS)


# -- hosts -----------------------------------------------------------------------------------------------------------


class Hosts:
    """Starts hosts for a test, and ends them."""

    def __init__(self, builder: Builder) -> None:
        self.environments = Environments(Spawner(), builder)
        self._started: list[HostProcess] = []

    async def end(self, host: HostProcess) -> None:
        """End a host."""
        self._started.remove(host)
        host.kill()
        await host.ended()
        host.close()

    async def start(self, job: Job) -> HostProcess:
        host = await self.environments(job)
        self._started.append(host)
        return host

    async def close(self) -> None:
        for host in list(self._started):
            await self.end(host)


@pytest.fixture
async def hosts(builder: Builder) -> AsyncIterator[Hosts]:
    made = Hosts(builder)
    yield made
    await made.close()


async def test_a_missing_distribution_gets_the_host_an_environment(
    wheels: Path, hosts: Hosts, tmp_path: Path, tmp_db: str
) -> None:
    make_wheel(wheels, "cart", "1.0", "V = 'cart 1.0'")
    files = flow("import sys\nreturn [cart.V, sys.prefix]", "import cart\n")
    job = make_job(tmp_path, files, await make_database(tmp_db), distributions={"cart": "1.0"})
    await told(await hosts.start(job))
    value, prefix = await answer(tmp_db)
    assert value == "cart 1.0"
    assert Path(prefix).parent == tmp_path / "environments"


async def test_pinned_dependencies_that_differ_and_nothing_of_the_workers_path(
    wheels: Path, hosts: Hosts, tmp_path: Path, tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheels, "cart", "1.0", "V = 'cart 1.0'")
    install(tmp_path / "site-packages", make_wheel(tmp_path, "cart", "2.0", "V = 'cart 2.0'"))
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site-packages'}:{Path(perdure.__file__).parents[1]}")
    job = make_job(
        tmp_path, flow("return cart.V", "import cart\n"), await make_database(tmp_db), distributions={"cart": "1.0"}
    )
    await told(await hosts.start(job))
    assert await answer(tmp_db) == "cart 2.0"  # recorded only: it can be imported, so it will do
    await hosts.close()
    pinned = msgspec.structs.replace(job, entries=[job.entries[0]._replace(pinned=True)])
    await told(await hosts.start(pinned))
    assert await answer(tmp_db, id="o-2") == "cart 1.0"


@pytest.mark.timeout(90)
async def test_environments_have_a_size_at_most_and_none_is_taken_from_under_a_host(
    wheels: Path, tmp_path: Path, tmp_db: str
) -> None:
    """With room for none at all, those that hosts run from stay, and go when the next is built after their end."""
    folder = tmp_path / "environments"
    hosts = Hosts(Builder(folder, most_bytes=0))
    for name in "abc":
        make_wheel(wheels, f"cart{name}", "1.0", "")
    job = make_job(tmp_path, flow("return 1"), await make_database(tmp_db))
    try:
        first, second = [
            await hosts.start(msgspec.structs.replace(job, distributions={f"cart{name}": "1.0"})) for name in "ab"
        ]
        await told(first)
        await told(second)
        both = kept(folder)
        assert len(both) == 2
        await hosts.end(first)
        third = await hosts.start(msgspec.structs.replace(job, distributions={"cartc": "1.0"}))
        await told(third)
        assert len(kept(folder)) == len({*kept(folder)} & {*both}) + 1 == 2
        assert await answer(tmp_db) == 1
        await hosts.end(third)
        again = await hosts.start(msgspec.structs.replace(job, distributions={"carta": "1.0"}))
        await told(again)  # made anew
        assert kept(folder) == both
    finally:
        await hosts.close()


async def test_what_cannot_be_loaded_here_is_tried_with_what_was_recorded(
    wheels: Path, hosts: Hosts, tmp_path: Path, tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheels, "cart", "1.0", "old = 'cart 1.0'")
    install(tmp_path / "site-packages", make_wheel(tmp_path, "cart", "2.0", "new = 'cart 2.0'"))
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site-packages'}:{Path(perdure.__file__).parents[1]}")
    files = flow("return old", "from cart import old\n")
    job = make_job(tmp_path, files, await make_database(tmp_db), distributions={"cart": "1.0"})
    first = await hosts.start(job)
    assert await first.told() is None
    assert await first.ended() == TRY_LATER
    await told(await hosts.start(job))
    assert await answer(tmp_db) == "cart 1.0"


async def test_without_an_environment_it_says_why(
    hosts: Hosts, tmp_path: Path, tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uv, "_SCRIPTS", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    job = make_job(tmp_path, flow("return 1"), tmp_db, distributions={"cart": "1.0"})
    failed = await told(await hosts.start(job), "failed")
    assert failed.cause is not None
    error = failed.cause.error(12)
    assert type(error) is EnvironmentMismatch
    assert str(error) == (
        "order@1.3.0 needs cart (recorded 1.0), which is not installed. No environment could be made for it: "
        "the program uv is not here (pip install 'perdure[uv]'). 12 runs are parked. "
        "Make it obtainable, or install it here, or upgrade them."
    )


async def test_without_an_environment_the_others_of_a_release_run_here(
    wheels: Path, hosts: Hosts, tmp_path: Path, tmp_db: str
) -> None:
    job = make_job(tmp_path, flow("return 1"), await make_database(tmp_db), distributions={"msgspec": "0.0.1"})
    twin = job.entries[0]._replace(workflow="twin", version_id=77, pinned=True)
    host = await hosts.start(msgspec.structs.replace(job, entries=[*job.entries, twin]))
    failed = await told(host, "failed")
    assert failed.versions == [77]
    assert failed.cause is not None
    assert "msgspec" in failed.cause.unbuilt
    await told(host)
    assert await answer(tmp_db) == 1


async def test_building_ends_with_the_worker(
    hosts: Hosts, tmp_path: Path, tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bin" / "uv"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 60\n")
    slow.chmod(0o700)
    monkeypatch.setattr(uv, "_SCRIPTS", "")
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    job = make_job(tmp_path, flow("return 1"), tmp_db, distributions={"cart": "1.0"})
    starting = asyncio.ensure_future(hosts.start(job))
    async with asyncio.timeout(40):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            await asyncio.sleep(0.02)
    await hosts.environments.close()
    with pytest.raises(OSError, match="the worker stops"):
        await starting
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not kept(tmp_path / "environments")
