"""What cannot be loaded is told with its cause, in the words of the documentation, and nothing of it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from perdure.errors import EnvironmentMismatch, HostCrashed, SnapshotCorrupt, VersionLoadFailed
from perdure.runtime.hosts.cause import Cause
from perdure.runtime.hosts.job import Job
from perdure.runtime.hosts.process import Spawner
from perdure.version.comparison import compare
from tests.hosting.releases import flow, hosted, kept, make_database, make_job, told


async def cause_of(job: Job, spawner: Spawner | None = None) -> Cause:
    """Return why a host cannot load a job. It ends by itself."""
    async with hosted(job, spawner) as host:
        failed = await told(host, "failed")
        assert await host.told() is None
        assert await host.ended() == 0
    assert failed.versions == [job.entries[0].version_id]
    assert failed.cause is not None
    return failed.cause


async def test_an_old_set_up_that_fails(tmp_path: Path, tmp_db: str) -> None:
    boot = "import shop.settings\ndef init(): ...\n"
    settings = "import os\n\nURL = os.environ['OLD_QUEUE_URL']\n"
    job = make_job(
        tmp_path, flow("return 1") | {"shop/boot.py": boot, "shop/settings.py": settings}, tmp_db,
        bootstrap="shop.boot:init",
    )  # fmt: skip
    error = (await cause_of(job)).error(37)
    assert type(error) is VersionLoadFailed
    assert str(error) == (
        "order@1.3.0 could not be loaded: KeyError 'OLD_QUEUE_URL' in shop/settings.py:3. 37 runs are parked. "
        "Fix the environment (perdure versions host-env), or upgrade them."
    )


@pytest.mark.parametrize(
    "code, what",
    [
        ("raise SystemExit(3)", "SystemExit 3 in shop/flow.py:1"),
        ("import nowhere", "ModuleNotFoundError No module named 'nowhere' in shop/flow.py:1"),
        ("raise ValueError('bad settings:\\n  no url.')", "ValueError bad settings: in shop/flow.py:1"),
        ("raise ValueError", "ValueError in shop/flow.py:1"),
        ("def (", "SyntaxError invalid syntax in shop/flow.py:1"),
        ("x = 1", "LookupError \"shop.flow has no workflow 'order'\""),
        (
            "import added",
            "NotInSnapshot 'added' is not in order@1.3.0's snapshot (it exists in 1.4.0) in shop/flow.py:1",
        ),
    ],
)  # fmt: skip
async def test_old_code_that_cannot_be_imported(tmp_path: Path, tmp_db: str, code: str, what: str) -> None:
    files = {"shop/__init__.py": "", "shop/flow.py": f"{code}\n"}
    job = make_job(tmp_path, files, tmp_db, elsewhere={"added": "1.4.0"})
    assert (await cause_of(job)).detail == what.replace('"', "")


async def test_a_missing_distribution(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow("return 1"), tmp_db, distributions={"perdure-nowhere": "0.27.0", "msgspec": "0.0.1"})
    error = (await cause_of(job)).error(12)
    assert type(error) is EnvironmentMismatch
    assert str(error) == (
        "order@1.3.0 needs perdure-nowhere (recorded 0.27.0), which is not installed. 12 runs are parked. "
        'Allow environments="uv", install it, or upgrade them.'
    )


async def test_another_version_of_a_distribution_is_a_notice_unless_it_is_pinned(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(
        tmp_path, flow("return 1"), await make_database(tmp_db), distributions={"msgspec": "0.0.1"}, python="2.7"
    )
    async with hosted(job) as host:
        notices = (await told(host)).notices
    assert notices[0].startswith("msgspec was recorded as 0.0.1, ")
    assert notices[1].startswith("it was recorded on another Python, this is 3.")
    pinned = msgspec.structs.replace(job, entries=[job.entries[0]._replace(pinned=True)])
    assert (await cause_of(pinned)).detail.startswith("msgspec 0.0.1 and nothing else (pinned), but ")


async def test_an_altered_file(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow("return 1"), tmp_db, in_folder=True)
    sha256 = job.manifest["shop/flow.py"].sha256
    blob = Path(job.blobs) / sha256
    blob.write_text("open('/tmp/never', 'w')\n" + blob.read_text())
    error = (await cause_of(job)).error()
    assert type(error) is SnapshotCorrupt
    assert str(error) == (
        f"order@1.3.0: shop/flow.py does not match {sha256[:8]}; the stored source was altered. Nothing was run."
    )
    assert not kept(Path(job.cache))


async def test_a_full_disk(tmp_path: Path, tmp_db: str) -> None:
    """No file may grow beyond a size: to the host that is a disk without room."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec prlimit --fsize=100000 {sys.executable} "$@"\n')
    python.chmod(0o700)

    async def interpreter(_job: Job) -> str:
        return str(python)

    job = make_job(tmp_path, flow("return 1") | {"shop/large.txt": "x" * 200_000}, tmp_db)
    cause = await cause_of(job, Spawner(interpreter))
    assert cause.code == "version_load_failed"
    assert "File too large" in cause.detail
    assert not kept(Path(job.cache))


def test_a_crash_is_told_with_its_signal() -> None:
    error = Cause("host_crashed", "release 71", "exited with signal 9 (3 times in 10 min)").error()
    assert type(error) is HostCrashed
    assert str(error) == "the host of release 71 exited with signal 9 (3 times in 10 min); its runs are parked."


def test_several_missing_distributions_are_counted() -> None:
    fault = compare({"perdure-a": "1", "perdure-b": "2"}, "").fault(pinned=False)
    assert fault == "perdure-a (recorded 1) and 1 more, which is not installed"
