"""What is found where stored versions were altered."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from perdure.version.evidence import faults
from perdure.version.manifest import ManifestFile, make_blob, tree_sha256
from perdure.version.survey import Survey
from tests.version.projects import shop, survey, write


@pytest.fixture
def found(tmp_path: Path) -> Survey:
    return survey(write(tmp_path, {**shop("import shop.pay\n", pay="LIMIT = 1\n"), "shop/note.txt": "x"}))


def told(found: Survey, **changes: object) -> list[str]:
    (definition,) = found.definitions
    release = found.release
    given = {
        "definition": definition, "tree": release.tree_sha256, "manifest": release.manifest,
        "blobs": list(found.blobs({file.sha256 for file in release.manifest.values()})), **changes,
    }  # fmt: skip
    return list(faults(version="order@1.3.0", **given))  # type: ignore[arg-type]


def test_what_is_as_it_was_registered_has_no_faults(found: Survey) -> None:
    assert told(found) == []


def test_an_altered_blob(found: Survey) -> None:
    pay = found.release.manifest["shop/pay.py"]
    blobs = [
        blob._replace(data=zlib.compress(b"LIMIT = 9\n")) if blob.sha256 == pay.sha256 else blob
        for blob in found.blobs({file.sha256 for file in found.release.manifest.values()})
    ]
    assert told(found, blobs=blobs) == [
        f"order@1.3.0: shop/pay.py does not match {pay.sha256[:8]}; the stored source was altered. Nothing was run."
    ]


def test_a_missing_blob(found: Survey) -> None:
    assert len(told(found, blobs=[])) == len(found.release.manifest)


def test_a_bomb_is_not_unfolded(found: Survey) -> None:
    pay = found.release.manifest["shop/pay.py"]
    bomb = make_blob(b"\0" * 50_000_000)._replace(sha256=pay.sha256)
    wanted = {one.sha256 for one in found.release.manifest.values()} - {pay.sha256}
    assert len(told(found, blobs=[*found.blobs(wanted), bomb])) == 1


def test_blob_and_manifest_exchanged_together_are_told_by_the_version(found: Survey) -> None:
    evil = make_blob(b"LIMIT = 10**9\n")
    manifest = {**found.release.manifest, "shop/pay.py": ManifestFile(evil.sha256, evil.raw_size)}
    blobs = [*found.blobs({one.sha256 for one in found.release.manifest.values()}), evil]
    (line,) = told(found, manifest=manifest, tree=tree_sha256(manifest), blobs=blobs)
    assert line.startswith("order@1.3.0: shop/pay.py is not what was registered (")


def test_a_manifest_of_another_tree(found: Survey) -> None:
    assert "its manifest does not match" in told(found, tree="0" * 64)[0]


def test_a_path_that_leads_elsewhere(found: Survey) -> None:
    manifest = {**found.release.manifest, "../evil.py": found.release.manifest["shop/pay.py"]}
    (line,) = told(found, manifest=manifest, tree=tree_sha256(manifest))
    assert "'../evil.py' is no relative path inside a snapshot" in line


def test_a_definition_that_was_altered(found: Survey) -> None:
    (definition,) = found.definitions
    (line,) = told(found, definition=definition._replace(entry="shop.flow:refund"))
    assert line.startswith("order@1.3.0: its content is not that of ")
    lacking = definition._replace(parts={**definition.parts, "shop/gone.py": "0" * 64})
    assert any("shop/gone.py is not among its files" in line for line in told(found, definition=lacking))
