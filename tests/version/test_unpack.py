"""A release is stored and comes back byte for byte, and nothing altered gets as far as the disk."""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.errors import SnapshotCorrupt, SnapshotTooLarge
from perdure.version.manifest import Blob, Manifest, ManifestFile, check_sizes, make_blob, path_fault, tree_sha256
from perdure.version.tree import module_of
from perdure.version.unpack import unpack
from tests.version.projects import identity, shop, source, survey, write

FILES = {"shop/__init__.py": b"", "shop/core/pay.py": b"RATE = 19\n" * 50, "shop/a.txt": "é\r\n".encode()}
VERSION = "order@1.3.0"


class Stored:
    """What a database holds of a release, to be altered."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.blobs = {blob.sha256: blob for blob in map(make_blob, files.values())}
        self.manifest: dict[str, ManifestFile] = {
            path: ManifestFile(hashlib.sha256(data).hexdigest(), len(data)) for path, data in files.items()
        }
        self.tree = tree_sha256(self.manifest)
        self.fetched = 0

    def fetch(self, wanted: Collection[str]) -> Iterable[Blob]:
        self.fetched += 1
        return [self.blobs[sha256] for sha256 in wanted if sha256 in self.blobs]

    def unpack(self, cache: Path) -> Path:
        return unpack(self.tree, self.manifest, self.fetch, cache, VERSION)

    def alter(self, path: str, **changes: Any) -> None:
        sha256 = self.manifest[path].sha256
        self.blobs[sha256] = self.blobs[sha256]._replace(**changes)

    def add(self, path: str, data: bytes = b"x") -> None:
        """Put a file into the manifest and let the tree's name agree: an attacker can do as much."""
        blob = make_blob(data)
        self.blobs[blob.sha256] = blob
        self.manifest[path] = ManifestFile(blob.sha256, len(data))
        self.tree = tree_sha256(self.manifest)


def found(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_refused(stored: Stored, tmp_path: Path, text: str) -> None:
    with pytest.raises(SnapshotCorrupt) as raised:
        stored.unpack(tmp_path / "cache")
    assert str(raised.value) == f"{VERSION}: {text}; the stored source was altered. Nothing was run."
    assert not list(tmp_path.rglob("*.py"))
    assert not list(tmp_path.glob("cache/*"))


def test_what_was_stored_comes_back(tmp_path: Path) -> None:
    stored = Stored(FILES)
    folder = stored.unpack(tmp_path / "cache")
    assert folder == tmp_path / "cache" / stored.tree
    assert found(folder) == FILES


def test_a_real_project_comes_back_and_has_the_same_identity(tmp_path: Path) -> None:
    write(tmp_path / "app", shop("from . import late\n", late="x = 1\n") | {"shop/a/b.txt": "data"})
    taken = survey(tmp_path / "app")
    blobs = {blob.sha256: blob for blob in taken.blobs({file.sha256 for file in taken.release.manifest.values()})}
    cache = tmp_path / "cache"
    tree, manifest = taken.release.tree_sha256, taken.release.manifest
    folder = unpack(tree, manifest, lambda wanted: [blobs[sha256] for sha256 in wanted], cache, VERSION)
    assert identity(folder).sha256 == taken.definitions[0].sha256
    assert survey(folder, source(folder)).release.tree_sha256 == tree


def test_the_folder_is_private(tmp_path: Path) -> None:
    folder = Stored(FILES).unpack(tmp_path / "cache")
    for path in (tmp_path / "cache", folder, folder / "shop", folder / "shop" / "core"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert stat.S_IMODE((folder / "shop" / "a.txt").stat().st_mode) == 0o600


def test_an_open_cache_folder_is_closed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    Stored(FILES).unpack(cache)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_a_cache_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        Stored(FILES).unpack(tmp_path / "cache")


def test_a_tree_that_is_there_is_used_again(tmp_path: Path) -> None:
    stored = Stored(FILES)
    folder = stored.unpack(tmp_path)
    write(folder, {"shop/__pycache__/pay.cpython-311.pyc": b"written by Python"})
    inode = folder.stat().st_ino
    assert stored.unpack(tmp_path).stat().st_ino == inode
    assert stored.fetched == 1


@pytest.mark.parametrize("damage", ["changed", "missing", "more", "link", "link to a folder"])
def test_a_tree_that_was_altered_on_disk_is_replaced(tmp_path: Path, damage: str) -> None:
    stored = Stored(FILES)
    folder = stored.unpack(tmp_path)
    file = folder / "shop" / "core" / "pay.py"
    if damage == "changed":
        file.write_bytes(b"RATE = 91\n" * 50)
    elif damage == "missing":
        file.unlink()
    elif damage == "more":
        (folder / "shop" / "planted.py").write_text("x")
    else:
        target = tmp_path / "elsewhere"
        if damage == "link":
            file.rename(target)
            file.symlink_to(target)
        else:
            file.parent.rename(target)
            (folder / "shop" / "core").symlink_to(target)
    assert found(stored.unpack(tmp_path)) == FILES
    assert stored.fetched == 2
    assert not list(tmp_path.glob(".*"))


def test_several_at_once_agree(tmp_path: Path) -> None:
    stored = Stored(FILES)
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: stored.unpack(tmp_path), range(24)))
    assert len(folders) == 1
    assert found(folders.pop()) == FILES
    assert not list(tmp_path.glob(".*"))


# ------------------------------------------------------------------------------------------------ what must be refused


def test_an_altered_blob_is_refused_with_its_name(tmp_path: Path) -> None:
    stored = Stored(FILES)
    short = stored.manifest["shop/core/pay.py"].sha256[:8]
    stored.alter("shop/core/pay.py", data=zlib.compress(b"RATE = 91\n" * 50))
    assert_refused(stored, tmp_path, f"shop/core/pay.py does not match {short}")


@pytest.mark.parametrize("data", [b"", b"no zlib", zlib.compress(b"RATE = 19\n" * 50)[:-5], zlib.compress(b"RATE")])
def test_a_damaged_blob_is_refused(tmp_path: Path, data: bytes) -> None:
    stored = Stored(FILES)
    stored.alter("shop/core/pay.py", data=data)
    assert_refused(
        stored, tmp_path, f"shop/core/pay.py does not match {stored.manifest['shop/core/pay.py'].sha256[:8]}"
    )


def test_a_bomb_is_not_unfolded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored(FILES)
    stored.alter("shop/core/pay.py", data=zlib.compress(bytes(50 * 2**20), 9))
    most = 0
    real = hashlib.sha256

    def watched(data: bytes = b"") -> object:
        nonlocal most
        most = max(most, len(data))
        return real(data)

    monkeypatch.setattr("perdure.version.unpack.hashlib.sha256", watched)
    assert_refused(
        stored, tmp_path, f"shop/core/pay.py does not match {stored.manifest['shop/core/pay.py'].sha256[:8]}"
    )
    assert most <= 501


def test_a_missing_blob_is_refused(tmp_path: Path) -> None:
    stored = Stored(FILES)
    file = stored.manifest["shop/core/pay.py"]
    del stored.blobs[file.sha256]
    assert_refused(stored, tmp_path, f"shop/core/pay.py ({file.sha256[:8]}) is missing")


def test_another_codec_is_refused(tmp_path: Path) -> None:
    stored = Stored(FILES)
    stored.alter("shop/core/pay.py", codec="pickle")
    assert_refused(stored, tmp_path, "shop/core/pay.py is stored in an unknown way ('pickle')")


def test_a_swapped_manifest_is_refused(tmp_path: Path) -> None:
    stored = Stored(FILES)
    tree = stored.tree
    stored.add("shop/more.py")
    stored.tree = tree
    assert_refused(stored, tmp_path, f"its manifest does not match {tree[:8]}")


@pytest.mark.parametrize(
    "path",
    ["../evil.py", "shop/../../evil.py", "/etc/evil.py", "shop//x.py", "./x.py", "shop/./x.py", "", "shop/", "a\\b.py",
     "C:/x.py", "shop/\x00.py", "shop/\n.py", "shop/..", "x" * 300 + ".py", "/".join("a" * 300)],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    stored = Stored(FILES)
    stored.add(path)
    assert path_fault(path) is not None
    assert_refused(stored, tmp_path, f"{path!a} is {path_fault(path)}")
    assert not (tmp_path / "evil.py").exists()


@pytest.mark.parametrize(
    "path", ["shop/x.pyc", "shop/__pycache__/x.cpython-311.pyc", "shop/x.so", "shop/X.PYD", "__pycache__/x.txt"]
)
def test_compiled_code_is_refused(tmp_path: Path, path: str) -> None:
    stored = Stored(FILES)
    stored.add(path)
    assert_refused(stored, tmp_path, f"{path!a} is compiled code, which no snapshot carries")


@given(st.lists(st.text("a.sopyd_é", min_size=1, max_size=9), min_size=1, max_size=3).map("/".join))
@example("a/.so")
@example(".so")
@example(".so.so")
@example("a/b..so")
@example(".py")
@example("a.py.py")
def test_a_path_is_read_as_pathlib_reads_it(path: str) -> None:
    parts = path.split("/")
    if not {".", ".."}.isdisjoint(parts):
        return
    native = PurePosixPath(path).suffix.lower() in {".pyc", ".pyo", ".so", ".pyd", ".dll", ".dylib"}
    assert (path_fault(path) is not None) == native
    module, is_package = module_of(path)
    name = ".".join(PurePosixPath(path).with_suffix("").parts)
    assert not is_package
    assert module in ((None, name) if path.endswith(".py") else (None,))
    assert module is not None or not path.endswith(".py") or len(parts) > 1


def test_a_file_that_is_a_folder_as_well_is_refused(tmp_path: Path) -> None:
    stored = Stored(FILES)
    stored.add("shop/core")
    assert_refused(stored, tmp_path, "shop/core is both a file and a folder")


@pytest.mark.parametrize("size", [-1, 17 * 2**20])
def test_a_size_that_cannot_have_been_stored_is_refused(tmp_path: Path, size: int) -> None:
    stored = Stored(FILES)
    stored.manifest["shop/a.txt"] = stored.manifest["shop/a.txt"]._replace(size=size)
    assert_refused(stored, tmp_path, "its manifest says more than can have been stored")
    assert stored.fetched == 0


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("perdure.version.unpack._write", full)
    with pytest.raises(OSError, match="No space left"):
        Stored(FILES).unpack(tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


# -------------------------------------------------------------------------------------------------------------- sizes


def test_too_much_is_refused_and_the_largest_named() -> None:
    sizes = {"shop/model.bin": 38 * 2**20, "shop/a.py": 3 * 2**20 - 5}
    with pytest.raises(SnapshotTooLarge) as raised:
        check_sizes(sizes)
    assert str(raised.value) == (
        "first-party files add up to 41 MiB (limit 16). Largest: shop/model.bin 38 MiB. Use resources=[...]."
    )


def test_the_limits_are_exact() -> None:
    assert check_sizes({"a": 2**20, "b": 0}) == []
    assert [notice.code for notice in check_sizes({"a": 2**20 + 1, "b": 15 * 2**20 - 1})] == ["large_file"] * 2
    with pytest.raises(SnapshotTooLarge, match=r"add up to 17 MiB \(limit 16\)"):
        check_sizes({"a": 16 * 2**20 + 1})
    with pytest.raises(SnapshotTooLarge, match="there are 20001 first-party files"):
        check_sizes({str(number): 0 for number in range(20_001)})


def test_a_large_file_is_refused_before_it_is_read_and_resources_leave_it_out(tmp_path: Path) -> None:
    write(tmp_path, shop("") | {"shop/prompt.txt": "x"})
    with (tmp_path / "shop" / "model.bin").open("wb") as file:
        file.truncate(40 * 2**30)  # it takes no room on disk, and would not fit into memory
    with pytest.raises(SnapshotTooLarge, match=r"Largest: shop/model\.bin 40960 MiB"):
        survey(tmp_path)
    assert set(survey(tmp_path, source(tmp_path, resources=("*.txt",))).release.manifest) == {
        "shop/__init__.py", "shop/flow.py", "shop/prompt.txt",
    }  # fmt: skip


def test_a_tree_has_one_name_whatever_the_order() -> None:
    one: Manifest = Stored(FILES).manifest
    assert tree_sha256(one) == tree_sha256(dict(sorted(one.items(), reverse=True)))
    moved = {path.replace("pay", "paid"): file for path, file in one.items()}
    assert tree_sha256(moved) != tree_sha256(one)
