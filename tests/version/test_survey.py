"""What belongs to a version beside code, what a release carries, and what is not done twice."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.errors import InvalidValue
from perdure.version.scan import Scan, decode
from tests.version.projects import FATAL, FLOW, OWN, identity, reached, shop, source, survey, write


def test_package_data_counts(tmp_path: Path) -> None:
    write(tmp_path, shop("") | {"shop/prompts/a.txt": "one", "shop/b.sql": "select 1"})
    before = identity(tmp_path)
    assert set(before.parts) == OWN | {"shop/prompts/a.txt", "shop/b.sql"}
    write(tmp_path, {"shop/prompts/a.txt": "two"})
    assert identity(tmp_path).sha256 != before.sha256


@pytest.mark.parametrize("patterns", [("prompts/*",), ("shop/prompts/*",), ("*.txt",)])
def test_resources_narrow_it(tmp_path: Path, patterns: tuple[str, ...]) -> None:
    files = shop("") | {"shop/prompts/a.txt": "one", "shop/b.sql": "select 1"}
    assert reached(tmp_path, files, resources=patterns) == OWN | {"shop/prompts/a.txt"}


def test_no_resources_at_all(tmp_path: Path) -> None:
    assert reached(tmp_path, shop("") | {"shop/a.txt": "one"}, resources=()) == OWN


def test_resources_that_match_nothing_are_refused(tmp_path: Path) -> None:
    write(tmp_path, shop("") | {"shop/a.txt": "one"})
    with pytest.raises(InvalidValue, match=r"resources='promts/\*' of order matches no file"):
        identity(tmp_path, resources=("promts/*",))


def test_a_script_has_the_data_that_it_names(tmp_path: Path) -> None:
    write(tmp_path, {"flow.py": FLOW, "prompts/a.txt": "one", "notes.txt": "x"})
    assert set(identity(tmp_path, "flow:order").parts) == {"flow.py"}
    found = survey(tmp_path, source(tmp_path, "flow:order", resources=("prompts/*.txt",)))
    assert set(found.definitions[0].parts) == set(found.release.manifest) == {"flow.py", "prompts/a.txt"}
    for outside in ("../*.txt", "/etc/hostname"):
        with pytest.raises(InvalidValue):
            identity(tmp_path, "flow:order", resources=(outside,))


def test_compiled_code_is_recorded_and_not_carried(tmp_path: Path) -> None:
    write(tmp_path, shop("from . import _fast\n") | {"shop/_fast.abi3.so": b"\x7fELF"})
    found = survey(tmp_path)
    assert set(found.release.manifest) == OWN
    assert list(found.release.dependencies.compiled) == ["shop/_fast.abi3.so"]


# ------------------------------------------------------------------------------------------------- what is kept


def test_a_second_survey_parses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, shop("from . import a, b\n", a="", b="__import__(n)\n", c=""))
    first = survey(tmp_path)
    kept: dict[str, Scan] = {}
    for blob in first.blobs({file.sha256 for file in first.release.manifest.values()}):
        if blob.scan is not None and (known := decode(blob.scan)) is not None:
            kept[blob.sha256] = known
    monkeypatch.setattr("perdure.version.closure.scan", lambda data: pytest.fail("a file was parsed again"))
    again = survey(tmp_path, scans=lambda wanted: {sha: kept[sha] for sha in wanted if sha in kept})
    assert again.definitions == first.definitions
    assert again.notices == first.notices


def test_however_many_workflows_ask_what_is_kept_is_looked_up_once(tmp_path: Path) -> None:
    write(tmp_path, shop("from . import a\n", a="", b=""))
    asked: list[list[str]] = []

    def scans(wanted: Sequence[str]) -> dict[str, Scan]:
        asked.append(list(wanted))
        return {}

    found = survey(tmp_path, source(tmp_path), source(tmp_path), source(tmp_path), scans=scans)
    assert asked == [sorted({file.sha256 for file in found.release.manifest.values()})]


def test_nothing_is_imported(tmp_path: Path) -> None:
    write(
        tmp_path, {path: FATAL + text for path, text in shop("from shop import a\n", a="import shop.b\n", b="").items()}
    )
    before = set(sys.modules)
    survey(tmp_path)
    assert not [name for name in set(sys.modules) - before if name.startswith("shop")]
