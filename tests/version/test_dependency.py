"""What is recorded beside the code, and when it is part of the identity."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from perdure.version.dependency import ENGINE_API, find_lock, record
from perdure.version.installed import Installed, providers
from tests.version.projects import identity, shop, source, survey, write


def install(folder: Path, name: str, version: str, top: str, *requires: str) -> None:
    lines = "".join(f"Requires-Dist: {one}\n" for one in requires)
    write(
        folder,
        {
            f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}",
            f"{name}-{version}.dist-info/top_level.txt": f"{top}\n",
            f"{top}.py": "",
        },
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


def test_what_is_reached_is_recorded_with_what_it_requires(site: Path) -> None:
    install(
        site, "Web_Client", "2.1", "web", "idna>=2", 'socks (==1.*) ; extra == "proxy"', 'tls; python_version > "3"'
    )
    install(site, "idna", "3.4", "idna")
    install(site, "tls", "1.0", "tls", "web-client")
    install(site, "socks", "1.7", "socks")
    install(site, "other", "9", "other", "web_client[proxy]")
    installed = Installed()
    assert installed.reached(["web", "json", "nowhere"]) == {"idna": "3.4", "tls": "1.0", "web-client": "2.1"}
    assert Installed().reached(["other"]) == {
        "idna": "3.4",
        "other": "9",
        "socks": "1.7",
        "tls": "1.0",
        "web-client": "2.1",
    }


def test_what_provides_an_import_is_what_the_standard_library_says(site: Path) -> None:
    install(site, "declared", "1", "one")
    records = {
        "wheel": "one/__init__.py,sha256=a,0\none/two.py,,\nwheel-1.dist-info/RECORD,,\n",
        "single": '"one.py",sha256=a,0\n',
        "data": "one/data.txt,sha256=a,0\ntwo.pth,sha256=a,0\n../../bin/one,,\n",
        "native": "one.abi3.so,sha256=a,0\n",
        "other": "one_more/__init__.py,,\n",
    }
    for name, text in records.items():
        folder = f"{name}-1.dist-info"
        write(site, {f"{folder}/METADATA": f"Name: {name}\nVersion: 1\n", f"{folder}/RECORD": text})
        for path in ("one/__init__.py", "one/two.py", "one.py", "one/data.txt", "one.abi3.so", "one_more/__init__.py"):
            write(site, {path: ""})
    write(site, {"old.egg-info/PKG-INFO": "Name: old\nVersion: 1\n", "old.egg-info/SOURCES.txt": "one/__init__.py\n"})
    expected = packages_distributions()
    for top in ("one", "one_more", "two", "data"):
        assert sorted(providers(Installed()._folders, [top])) == sorted(expected.get(top, ())), top


def test_what_provides_the_imports_of_this_very_environment_is_the_same() -> None:
    expected = packages_distributions()
    for top in (name for name in expected if name.isidentifier()):
        assert sorted(providers(Installed()._folders, [top])) == sorted(expected[top]), top


def test_a_definition_records_its_own_and_the_release_all(tmp_path: Path, site: Path) -> None:
    install(site, "web", "2.1", "web")
    install(site, "sums", "1.0", "sums")
    app = write(tmp_path / "app", shop("import web.client\n", other="import sums\nasync def order(): ...\n"))
    found = survey(app, source(app), source(app, "shop.other:order"), also=(site,), installed=Installed())
    assert [dict(one.dependencies.distributions) for one in found.definitions] == [{"web": "2.1"}, {"sums": "1.0"}]
    assert found.release.dependencies.distributions == {"sums": "1.0", "web": "2.1"}
    assert found.release.dependencies.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found.release.dependencies.engine_api == ENGINE_API


def test_recorded_dependencies_are_no_part_of_identity_and_pinned_ones_are(tmp_path: Path, site: Path) -> None:
    app = write(tmp_path / "app", shop("import web\n"))
    hashes: dict[str, set[str]] = {"record": set(), "pin": set()}
    for version in ("2.1", "2.2"):
        install(site, "web", version, "web")
        for policy, seen in hashes.items():
            (found,) = survey(app, source(app, deps=policy), also=(site,), installed=Installed()).definitions
            seen.add(found.sha256)
        (site / f"web-{version}.dist-info" / "METADATA").unlink()
        (site / f"web-{version}.dist-info" / "top_level.txt").unlink()
        (site / f"web-{version}.dist-info").rmdir()
    assert [len(seen) for seen in hashes.values()] == [1, 2]


def test_where_there_is_a_lock_that_is_what_is_pinned(tmp_path: Path) -> None:
    write(tmp_path, shop("") | {"pyproject.toml": "", "uv.lock": "web = 1"})
    one = identity(tmp_path, deps="pin")
    write(tmp_path, {"uv.lock": "web = 2"})
    two = identity(tmp_path, deps="pin")
    assert one.sha256 != two.sha256
    assert two.dependencies.lock is not None
    assert two.dependencies.lock.text == "web = 2"
    assert identity(tmp_path).sha256 == identity(tmp_path).sha256 != two.sha256


def test_a_lock_is_looked_for_up_to_the_projects_folder(tmp_path: Path) -> None:
    write(tmp_path, {"uv.lock": "far", "repo/pyproject.toml": "", "repo/poetry.lock": "near", "repo/src/shop/x.py": ""})
    lock = find_lock(tmp_path / "repo" / "src")
    assert lock is not None
    assert (lock.name, lock.text) == ("poetry.lock", "near")
    (tmp_path / "repo" / "poetry.lock").unlink()
    assert find_lock(tmp_path / "repo" / "src") is None
    (tmp_path / "repo" / "pyproject.toml").unlink()
    assert find_lock(tmp_path / "repo" / "src") is None, "a lock of something else above"


def test_an_environment_has_a_name() -> None:
    one = record({"web": "1"}, {}, None)
    assert one.env_sha256 == record({"web": "1"}, {}, None).env_sha256
    assert len({one.env_sha256, record({"web": "2"}, {}, None).env_sha256, one._replace(python="3.99").env_sha256}) == 3
