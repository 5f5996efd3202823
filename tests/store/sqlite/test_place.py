"""Where a database file may be: each refusal is one line, and leaves the place as it was."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from perdure.errors import UsageError
from perdure.store.base import StoreOptions, open_store
from perdure.store.sqlite import place
from tests.house.tree import ROOT
from tests.process import Unprivileged

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /mnt/share rw,relatime - nfs4 server:/export rw
31 22 0:26 / /mnt/with\\040space rw - cifs //server/share rw
32 30 8:1 / /mnt/share/local rw - xfs /dev/sda1 rw
33 22 0:27 / /home rw - ext4 /dev/vdb rw
34 22 0:28 / /home rw - fuse.sshfs host: rw
broken line
"""

OPENER = """
import sys
from perdure.errors import UsageError
from perdure.store.base import StoreOptions, open_store
try:
    store = open_store(sys.argv[1], StoreOptions())
    store.open()
except UsageError as error:
    print("refused:", error)
else:
    print("opened")
"""


def refusal(path: Path | str, **options: bool) -> str:
    with pytest.raises(UsageError) as caught:
        open_store(f"sqlite:///{path}", StoreOptions(**options)).open()  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "url,path",
    [
        ("sqlite:///runs.db", "runs.db"),
        ("sqlite:///data/runs.db", "data/runs.db"),
        ("sqlite:////var/lib/runs.db", "/var/lib/runs.db"),
        ("sqlite:///with%20space.db", "with space.db"),
        ("sqlite://", None),
        ("sqlite:///", None),
        ("sqlite:///:memory:", None),
    ],
)
def test_a_url_with_three_slashes_is_relative_and_with_four_absolute(url: str, path: str | None) -> None:
    assert place.path_of(url) == (None if path is None else Path(path))


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://runs.db",
        "sqlite://host/runs.db",
        "sqlite:///runs.db?mode=ro",
        "sqlite:///a#b",
        "sqlite:///a%00b",
        "sqlite:///dir/",
    ],
)
def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="sqlite"):
        open_store(url, StoreOptions())


@pytest.mark.parametrize("scheme", ["", "nosuch", "base", "writer", "migrate", "instrumented", "sqltext", "../x", "os"])
def test_a_scheme_without_a_backend_is_refused(scheme: str) -> None:
    with pytest.raises(UsageError, match="expected sqlite:///file"):
        open_store(f"{scheme}:///x", StoreOptions())


def test_a_missing_folder_is_refused_and_not_made(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "missing" / "runs.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.db").mkdir()
    assert "a folder" in refusal(tmp_path / "runs.db")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refusal(tmp_path / "file" / "runs.db")


def test_a_link_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    for target in (tmp_path / "target.db", tmp_path / "nowhere.db"):
        link = tmp_path / f"link-to-{target.name}"
        link.symlink_to(target)
        (tmp_path / "target.db").write_bytes(b"")
        assert "symbolic link" in refusal(link)
    assert not (tmp_path / "nowhere.db").exists()
    assert (tmp_path / "target.db").read_bytes() == b""


def test_a_link_in_the_path_to_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = open_store(f"sqlite:///{tmp_path / 'link' / 'runs.db'}", StoreOptions())
    store.open()
    store.close()
    assert (tmp_path / "real" / "runs.db").is_file()


def test_a_file_with_a_second_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.db").write_bytes(b"")
    (tmp_path / "two.db").hardlink_to(tmp_path / "one.db")
    assert "hard link" in refusal(tmp_path / "two.db")


def test_a_socket_or_pipe_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.db")
    assert "not a regular file" in refusal(tmp_path / "pipe.db")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.db"))
        assert "not a regular file" in refusal(tmp_path / "s.db")


def test_a_missing_file_is_refused_where_none_may_be_made(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "runs.db", create=False)
    assert "no such file" in refusal(tmp_path / "runs.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "folder,kind",
    [
        ("/", "ext4"),
        ("/data", "ext4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/er", "nfs4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/share/local/x", "xfs"),
        ("/mnt/with space/x", "cifs"),
        ("/home/ada", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_its_innermost_mount(folder: str, kind: str) -> None:
    assert place.file_system(folder, MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "fuse.glusterfs"])
def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(place, "file_system", lambda _: kind)
    assert f"network file system ({kind})" in refusal(tmp_path / "runs.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuse.ntfs-3g", "apfs", ""])
def test_a_local_file_system_is_not(kind: str) -> None:
    assert not place.NETWORK.match(kind)


def test_a_read_only_folder_is_refused(unprivileged: Unprivileged) -> None:
    folder = unprivileged.folder / "locked"
    folder.mkdir()
    unprivileged.own(folder)
    folder.chmod(0o500)
    child = unprivileged(*python(OPENER), f"sqlite:///{folder / 'runs.db'}", env=paths())
    assert "refused:" in child.finish().out
    assert "not writable" in child.out
    assert list(folder.iterdir()) == []


def test_a_read_only_file_is_refused(unprivileged: Unprivileged, tmp_path: Path) -> None:
    file = unprivileged.folder / "runs.db"
    store = open_store(f"sqlite:///{file}", StoreOptions())
    store.open()
    store.close()
    unprivileged.own(file)
    file.chmod(0o400)
    before = contents(unprivileged.folder)
    child = unprivileged(*python(OPENER), f"sqlite:///{file}", env=paths())
    assert "read-only for this user" in child.finish().out
    assert contents(unprivileged.folder) == before


def python(code: str) -> tuple[str, ...]:

    return (sys.executable, "-c", code)


def paths() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
