"""Only what a trusted key has signed is run: shown with real workers, on databases that somebody has altered."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import sqlite3
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from perdure import Engine, Run, RunInfo, SignatureInvalid, Status
from perdure.version.manifest import ManifestFile, tree_sha256
from tests.keys import make_keys
from tests.process import Child, Spawner


def shop(label: str, name: str = "fulfil") -> str:
    """Return a shop that leaves a trace as soon as a line of it is executed."""
    return dedent(
        f"""
        import os
        with open(os.environ["TRACES"], "a") as file:
            file.write("{label}\\n")
        import perdure

        @perdure.step
        async def say() -> str:
            return "{label}" + os.environ.get("SET_BY_DATABASE", "")

        @perdure.workflow(name="{name}", version="{label}")
        async def fulfil() -> str:
            return await say()
        """
    )


class Place:
    """Code in folders, a database, and workers."""

    def __init__(self, folder: Path, spawn: Spawner) -> None:
        self.folder = folder
        self.file = folder / "test.db"
        self.url = f"sqlite:///{self.file}"
        self._spawn = spawn
        self.keys = make_keys(folder)
        self.cache = folder / "cache" / "perdure" / "releases"
        self._traces = folder / "traces"

    def write(self, name: str, text: str) -> Path:
        """Put code into a folder of its own, as on a machine of its own."""
        file = self.folder / name / "shop.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
        return file

    def command(self, *words: object) -> Child:
        env = {"PERDURE_DB": self.url, "TRACES": str(self._traces), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return self._spawn(sys.executable, "-m", "perdure", *map(str, words), env=env, folder=self.folder)

    def publish(self, name: str, text: str, *words: object, code: int = 0) -> str:
        """Publish code as a deployment would; return what was said."""
        done = self.command("versions", "publish", self.write(name, text), *words).finish(30)
        assert done.code == code, done.err
        return done.out + done.err

    def worker(self, name: str, text: str, *words: object) -> Child:
        """Start a worker that runs signed versions only."""
        return self.command(
            "worker", self.write(name, text), "--trusted-key", self.keys.public, "--require-signed", *words
        )

    def stop(self, child: Child) -> None:
        child.send(signal.SIGTERM)
        assert child.finish(30).code == 0

    def sql(self, *statements: str, **values: Any) -> list[tuple[Any, ...]]:
        """Do what somebody can do who owns the tables: no trigger keeps them from it."""
        with sqlite3.connect(self.file) as connection:
            for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
                connection.execute(f"drop trigger {name}")
            rows = [connection.execute(statement, values).fetchall() for statement in statements]
        connection.close()
        return rows[-1]

    @property
    def traces(self) -> list[str]:
        """What was executed since `forget`."""
        return sorted(set(self._traces.read_text().split())) if self._traces.exists() else []

    def forget(self) -> None:
        self._traces.unlink(missing_ok=True)


@pytest.fixture
def place(tmp_path: Path, spawn: Spawner) -> Place:
    return Place(tmp_path, spawn)


async def until(run: Run[Any], status: Status) -> RunInfo:
    async with asyncio.timeout(30):
        while (info := await run.info()).status != status:
            await asyncio.sleep(0.05)
    return info


async def start(engine: Engine, version: str = "1.0.0", workflow: str = "fulfil") -> Run[Any]:
    return await engine.start(workflow, version=version)


def published(place: Place) -> None:
    """Publish two signed versions, of which the first is to be run by a host."""
    place.publish("v1", shop("1.0.0"), "--sign", place.keys.private)
    place.publish("v2", shop("2.0.0"), "--sign", place.keys.private)
    (place.folder / "v1" / "shop.py").unlink()
    place.forget()


async def test_what_is_signed_runs_in_a_host_and_nobody_else_sets_its_environment(place: Place) -> None:
    await asyncio.to_thread(published, place)
    done = place.command(
        "versions", "host-env", "fulfil@1.0.0", "--set", "SET_BY_DATABASE=x", "--reason", "because"
    ).finish(30)
    assert done.code == 0, done.err
    worker = place.worker("v2", shop("2.0.0"), "--registration", "published-only")
    async with Engine(place.url, worker=False) as engine:
        run = await start(engine)
        await until(run, Status.COMPLETED)
        assert await run.result() == "1.0.0"
    assert place.traces == ["1.0.0", "2.0.0"]
    place.stop(worker)
    assert "SET_BY_DATABASE: not set, as only what is signed counts here" in worker.err


# ---- what was altered ----


def evil(place: Place) -> str:
    """Store code that leaves a trace, and return its SHA-256."""
    text = shop("evil").encode()
    sha256 = hashlib.sha256(text).hexdigest()
    place.sql(
        "insert into definition_blob values (:sha256, 'zlib', :size, :data, null, null, 0)",
        sha256=sha256, size=len(text), data=zlib.compress(text),
    )  # fmt: skip
    return sha256


def manifest_of(place: Place) -> dict[str, list[Any]]:
    ((text,),) = place.sql("select manifest from release_tree where id = 1")
    found: dict[str, list[Any]] = json.loads(text)
    return found


def altered_blob(place: Place) -> None:
    """Other bytes under the name of the good ones."""
    sha256 = manifest_of(place)["shop.py"][0]
    data = zlib.compress(shop("evil").encode())
    place.sql("update definition_blob set data = :data where sha256 = :sha256", data=data, sha256=sha256)


def swapped_manifest(place: Place) -> None:
    """Another file in the manifest, with a tree of the right name: all hashes agree, but nobody signed them."""
    text = shop("evil")
    swap(place, {"shop.py": [evil(place), len(text.encode())]})


def added_file(place: Place) -> None:
    """A file that shadows what the version imports from elsewhere."""
    swap(place, manifest_of(place) | {"perdure.py": [evil(place), len(shop("evil").encode())]})


def path_out_of_the_folder(place: Place) -> None:
    swap(place, manifest_of(place) | {"../shop.py": [evil(place), len(shop("evil").encode())]})


def path_from_the_root(place: Place) -> None:
    swap(place, manifest_of(place) | {"/tmp/shop.py": [evil(place), len(shop("evil").encode())]})


def swap(place: Place, manifest: dict[str, list[Any]]) -> None:
    tree = tree_sha256({path: ManifestFile(*file) for path, file in manifest.items()})
    text = json.dumps(manifest)
    place.sql("update release_tree set manifest = :text, tree_sha256 = :tree where id = 1", text=text, tree=tree)


def bomb(place: Place) -> None:
    """A content that unfolds to a gigabyte."""
    sha256 = manifest_of(place)["shop.py"][0]
    squeeze = zlib.compressobj(9)
    data = b"".join([*(squeeze.compress(bytes(1 << 20)) for _ in range(1024)), squeeze.flush()])
    place.sql("update definition_blob set data = :data where sha256 = :sha256", data=data, sha256=sha256)


def other_entry(place: Place) -> None:
    """Signed files, and another function of them."""
    place.sql("update definition_version set entry = 'os:getcwd' where id = 1")


def other_set_up(place: Place) -> None:
    place.sql("update definition_version set bootstrap = 'shop:say' where id = 1")


def other_config(place: Place) -> None:
    place.sql("update definition_version set config = '{\"price\":0}' where id = 1")


SIGNED = "fulfil@1.0.0 is not signed by a trusted key (key id {key}, whose signature is of something else). "
CORRUPT = "fulfil@1.0.0: shop.py does not match {sha}; the stored source was altered. "


@pytest.mark.parametrize(
    "alter,said",
    [
        (altered_blob, CORRUPT),
        (bomb, CORRUPT),
        (swapped_manifest, SIGNED),
        (added_file, SIGNED),
        (path_out_of_the_folder, SIGNED),
        (path_from_the_root, SIGNED),
        (other_entry, SIGNED),
        (other_set_up, SIGNED),
        (other_config, SIGNED),
    ],
)
async def test_what_was_altered_is_refused_before_anything_of_it_runs(
    place: Place, alter: Callable[[Place], None], said: str
) -> None:
    await asyncio.to_thread(published, place)
    sha = manifest_of(place)["shop.py"][0][:8]
    await asyncio.to_thread(alter, place)
    worker = place.worker("v2", shop("2.0.0"))
    async with Engine(place.url, worker=False) as engine:
        info = await until(await start(engine), Status.PARKED)
        own = await start(engine, "2.0.0")
        await until(own, Status.COMPLETED)  # what is in order is not affected
    assert info.detail == "version: " + said.format(key=place.keys.id, sha=sha) + "Nothing was run."
    assert place.traces == ["2.0.0"]
    assert unpacked(place) == []
    place.stop(worker)


def unpacked(place: Place) -> list[str]:
    """Return the files of releases that are on disk."""
    return [path.name for path in place.cache.rglob("*.py")] if place.cache.exists() else []


# ---- what nobody trusted has signed ----


async def parked(place: Place, workflow: str = "fulfil", version: str = "1.0.0") -> str:
    """Return why a run of a version is parked by a worker of another one."""
    worker = place.worker("v2", shop("2.0.0"))
    async with Engine(place.url, worker=False) as engine:
        info = await until(await start(engine, version, workflow), Status.PARKED)
    place.stop(worker)
    assert info.detail is not None
    assert version not in place.traces
    assert unpacked(place) == []
    return info.detail


async def test_a_version_without_a_signature_is_refused_until_it_has_one(place: Place) -> None:
    await asyncio.to_thread(place.publish, "v1", shop("1.0.0"))
    await asyncio.to_thread(place.publish, "v2", shop("2.0.0"))
    place.forget()
    assert await parked(place) == (
        "version: fulfil@1.0.0 is not signed by a trusted key (it has no signature). Nothing was run."
    )
    done = place.command(
        "versions", "sign", "fulfil@1.0.0", "--key", place.keys.private, "--reason", "looked at"
    ).finish(30)
    assert (done.code, done.out) == (0, f"fulfil@1.0.0: signed with key {place.keys.id}\n")
    worker = place.worker("v2", shop("2.0.0"))
    async with Engine(place.url, worker=False) as engine:
        (info,) = [info async for info in engine.list()]
        run = engine.get(info.id)
        await until(run, Status.COMPLETED)
        assert await run.result() == "1.0.0"
    place.stop(worker)


async def test_the_signature_of_a_key_that_is_not_trusted(place: Place) -> None:
    other = make_keys(place.folder, "other")
    await asyncio.to_thread(place.publish, "v1", shop("1.0.0"), "--sign", other.private)
    await asyncio.to_thread(place.publish, "v2", shop("2.0.0"))
    place.forget()
    assert await parked(place) == (
        f"version: fulfil@1.0.0 is not signed by a trusted key (key id {other.id}). Nothing was run."
    )


async def test_a_signature_is_not_taken_from_another_label_or_workflow(place: Place) -> None:
    def prepare() -> None:
        place.publish("v0", shop("0.9.0"), "--sign", place.keys.private)
        place.publish("other", shop("1.0.0", "refund"), "--sign", place.keys.private)
        place.publish("v1", shop("1.0.0"))
        place.publish("v2", shop("2.0.0"))
        place.sql(
            "insert into version_signature select 3, key_id, value, signed_by, signed_at from version_signature"
            " where seq in (1, 2)"
        )

    await asyncio.to_thread(prepare)
    place.forget()
    assert place.sql("select label from version_label where seq = 3") == [("1.0.0",)]
    assert await parked(place) == SIGNED_OF_OTHERS.format(place.keys.id)


SIGNED_OF_OTHERS = (
    "version: fulfil@1.0.0 is not signed by a trusted key (key id {}, whose signature is of something else). "
    "Nothing was run."
)


async def test_several_keys_may_be_trusted_while_one_takes_the_place_of_another(place: Place) -> None:
    new = make_keys(place.folder, "new")
    await asyncio.to_thread(place.publish, "v1", shop("1.0.0"), "--sign", place.keys.private)
    await asyncio.to_thread(place.publish, "v2", shop("2.0.0"), "--sign", new.private)
    worker = place.worker("v3", shop("3.0.0"), "--trusted-key", new.public)
    async with Engine(place.url, worker=False) as engine:
        runs = [await start(engine, version) for version in ("1.0.0", "2.0.0")]
        async with asyncio.timeout(40):
            assert [await run.result() for run in runs] == ["1.0.0", "2.0.0"]
    place.stop(worker)


# ---- the worker's own code, and checks ----


async def test_a_worker_that_may_not_publish_does_not_start_on_code_that_nobody_signed(place: Place) -> None:
    only = ("--registration", "published-only")
    await asyncio.to_thread(place.publish, "v1", shop("1.0.0"))
    ended = place.worker("v1", shop("1.0.0"), *only).finish(30)
    assert ended.code == 2
    assert "error: fulfil@1.0.0 is not signed by a trusted key (it has no signature). Nothing was run." in ended.err
    # The same code once more, signed: no second version, but a signature.
    said = await asyncio.to_thread(place.publish, "v1", shop("1.0.0"), "--sign", place.keys.private)
    assert f"known already, signed with key {place.keys.id}" in said
    worker = place.worker("v1", shop("1.0.0"), *only)
    async with Engine(place.url, worker=False) as engine, asyncio.timeout(30):
        assert await (await start(engine)).result() == "1.0.0"
    place.stop(worker)
    # The database may say what it likes: it is the code here that must have been signed.
    text = shop("1.0.0") + "\nprint('altered')\n"
    await asyncio.to_thread(place.publish, "x", text)
    place.sql("update definition_alias set version_id = 1 where version_id = 2")
    ended = place.worker("x", text, *only).finish(30)
    assert ended.code == 2
    assert f"(key id {place.keys.id}, whose signature is of something else). Nothing was run." in ended.err


async def test_a_check_against_a_stored_version_loads_nothing_that_is_not_signed(place: Place) -> None:
    await asyncio.to_thread(place.publish, "v1", shop("1.0.0"), "--sign", place.keys.private)
    await asyncio.to_thread(place.publish, "v2", shop("2.0.0"))
    place.forget()
    async with Engine(place.url, worker=False, trusted_keys=[place.keys.public], require_signed=True) as engine:
        run = await start(engine)
        with pytest.raises(SignatureInvalid, match=r"fulfil@2\.0\.0 is not signed by a trusted key"):
            await engine.check(run.id, to="2.0.0")
    trust = ("--trusted-key", place.keys.public, "--require-signed")
    done = place.command("check", run.id, "--to", "2.0.0", *trust).finish(30)
    assert "fulfil@2.0.0 is not signed by a trusted key (it has no signature)" in done.err
    done = place.command("upgrade", "plan", "--id", run.id, "--to", "2.0.0", *trust).finish(30)
    assert "fulfil@2.0.0 is not signed by a trusted key (it has no signature)" in done.err + done.out
    assert place.traces == []


async def test_of_one_release_only_what_is_signed_runs(place: Place) -> None:
    text = shop("1.0.0") + '\n\n@perdure.workflow(name="refund", version="1.0.0")\nasync def refund() -> str: ...\n'

    def prepare() -> None:
        place.publish("v1", text, "--sign", place.keys.private)
        place.publish("v2", shop("2.0.0"))
        place.sql("delete from version_signature where seq = (select seq from version_label where workflow = 'refund')")

    await asyncio.to_thread(prepare)
    worker = place.worker("v2", shop("2.0.0"))
    async with Engine(place.url, worker=False) as engine:
        refused, taken = await start(engine, workflow="refund"), await start(engine)
        info = await until(refused, Status.PARKED)
        await until(taken, Status.COMPLETED)
    assert info.detail == (
        "version: refund@1.0.0 is not signed by a trusted key (it has no signature). Nothing was run."
    )
    place.stop(worker)
