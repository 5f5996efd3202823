"""What lock files say exactly, and what is installed because of it."""

from __future__ import annotations

import hashlib

import pytest

from perdure.version.dependency import Lock
from perdure.version.locks import Pin, pins, requirements, uv_project


def lock(name: str, text: str) -> Lock:
    return Lock(name, text, hashlib.sha256(text.encode()).hexdigest())


def test_requirements_that_are_exact_count_and_others_do_not() -> None:
    text = (
        "# by hand\n--index-url https://index.example/simple\n-e .\n-r more.txt\nhttpx>=0.27\nflask==3.*\n"
        "Zope.Interface[test] == 7.1 ; python_version < '4' \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb  # why\n"
        "six===1.17.0\n"
        "thing @ https://files.example/thing-1.whl#sha256=cc ; sys_platform == 'linux'\n"
    )
    assert pins(lock("requirements.txt", text)) == [
        Pin("zope-interface", "7.1", "Zope.Interface[test] == 7.1", "python_version < '4'", ("sha256:aa", "sha256:bb")),
        Pin("six", "1.17.0", "six===1.17.0"),
        Pin("thing", "", "thing @ https://files.example/thing-1.whl#sha256=cc", "sys_platform == 'linux'"),
    ]


def test_a_pylock_leaves_out_groups_and_what_no_name_finds() -> None:
    text = """
lock-version = "1.0"
[[packages]]
name = "a"
version = "1"
marker = "sys_platform == 'linux'"
sdist = { hashes = { sha256 = "aa" } }
wheels = [{ hashes = { sha256 = "bb" } }]
[[packages]]
name = "b"
version = "2"
marker = "'dev' in dependency_groups"
wheels = [{ hashes = { sha256 = "cc" } }]
[[packages]]
name = "c"
directory = { path = "." }
"""
    found = pins(lock("pylock.toml", text))
    assert [(pin.name, pin.hashes, pin.stands_alone) for pin in found] == [
        ("a", ("sha256:bb", "sha256:aa"), True), ("b", ("sha256:cc",), False)
    ]  # fmt: skip
    assert requirements({}, found) == ["a==1 ; sys_platform == 'linux' --hash=sha256:bb --hash=sha256:aa"]


@pytest.mark.parametrize("name, text", [
    ("poetry.lock", '[[package]]\nname = "A"\nversion = "1"\n[metadata.files]\nA = [{hash = "sha256:aa"}]\n'),
    ("pdm.lock", '[[package]]\nname = "A"\nversion = "1"\nfiles = [{file = "x", hash = "sha256:aa"}]\n'),
    ("uv.lock", '[[package]]\nname = "A"\nversion = "1"\nsource = {registry = "x"}\nwheels = [{hash = "sha256:aa"}]\n'),
])  # fmt: skip
def test_where_a_lock_does_not_say_what_is_installed_it_only_has_hashes(name: str, text: str) -> None:
    found = pins(lock(name, text))
    assert requirements({"a": "1"}, found) == ["A==1 --hash=sha256:aa"]
    assert requirements({"a": "2"}, found) == ["a==2"]
    assert requirements({}, found) == []


def test_what_was_recorded_goes_before_the_lock_and_the_engine_is_never_named() -> None:
    found = pins(lock("requirements.txt", "a==1 ; python_version < '3'\na==2\nb==3\nPerdure==9\n"))
    assert requirements({"a": "2", "perdure": "1"}, found) == ["a==2", "b==3"]


@pytest.mark.parametrize("name, text", [("uv.lock", "no = "), ("pylock.toml", ""), ("Pipfile.lock", "[]")])
def test_a_lock_that_cannot_be_read(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"the stored {name} cannot be read"):
        pins(lock(name, text))


def test_the_project_of_a_lock_of_uv() -> None:
    one = '[[package]]\nname = "app"\nversion = "1"\nsource = {editable = "."}\n'
    assert uv_project(lock("uv.lock", one)) == '[project]\nname = "app"\nversion = "0"\n'
    assert not uv_project(lock("uv.lock", one.replace('"."', '"packages/app"')))
