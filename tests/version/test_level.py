"""How large a change is, by what the source does step after step."""

from __future__ import annotations

import pytest

from perdure.version.label import parse
from perdure.version.level import bumped, level, steps_of

STEPS = """
import perdure
from perdure import sleep, step as durable

@perdure.step
async def charge(x): ...

@perdure.step(retries=3)
def ship(x): ...

async def helper(x):
    await ship(x)

"""


def words(body: str, **files: str) -> list[str]:
    text = STEPS + "@perdure.workflow\nasync def order(x):\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    sources = {"shop/flow.py": text, **{f"shop/{name}.py": source for name, source in files.items()}}
    return steps_of({path: source.encode() for path, source in sources.items()}, "shop.flow:order")


def test_the_steps_are_read_in_the_order_of_the_source() -> None:
    assert words("await charge(x)\nawait ship(x)") == ["charge", "ship"]
    assert words("await ship(await charge(x))") == ["charge", "ship"]
    assert words("print(x)\nreturn len(x)") == []


def test_what_decides_whether_a_step_is_reached_counts() -> None:
    assert words("if x:\n    await charge(x)\nawait ship(x)") == ["If(", "charge", ")", "ship"]
    assert words("if x:\n    print(x)") == []


def test_functions_of_the_same_files_are_written_out_and_recursion_ends() -> None:
    assert words("await helper(x)") == ["ship"]
    assert words("await again(x)", more="async def again(x):\n    await charge(x)\n    await again(x)\n") == ["charge"]


def test_steps_of_other_files_are_steps() -> None:
    assert words("await pay(x)", pay="from perdure import step\n@step\nasync def pay(x): ...\n") == ["pay"]


def test_what_is_asked_of_the_engine_counts() -> None:
    assert words("await perdure.sleep(1)\nawait sleep(2)") == ["perdure.sleep", "perdure.sleep"]


def test_what_cannot_be_parsed_or_found_does_nothing() -> None:
    assert steps_of({"shop/flow.py": b"def ("}, "shop.flow:order") == []
    assert steps_of({}, "shop.flow:order") == []
    assert steps_of({"shop/__init__.py": STEPS.encode()}, "shop:helper") == ["ship"]


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("await charge(x)", "print(x)\nawait charge(x)", "patch"),
        ("await charge(x)", "await charge(x)\nawait ship(x)", "minor"),
        ("await charge(x)\nawait ship(x)", "await charge(x)", "major"),
        ("await charge(x)\nawait ship(x)", "await ship(x)\nawait charge(x)", "major"),
        ("await charge(x)", "if x:\n    await charge(x)", "major"),
    ],
)
def test_the_same_is_a_patch_more_behind_it_is_minor_the_rest_is_major(old: str, new: str, expected: str) -> None:
    assert level(words(old), words(new)) == expected


@pytest.mark.parametrize(
    "label, patch, minor, major",
    [
        ("1.2.3", "1.2.4", "1.3.0", "2.0.0"),
        ("1.2.3+abc", "1.2.4", "1.3.0", "2.0.0"),
        ("2.0.0-rc.1", "2.0.0", "2.0.0", "2.0.0"),
    ],
)
def test_the_next_number(label: str, patch: str, minor: str, major: str) -> None:
    semver = parse(label)
    assert (bumped(semver, "patch"), bumped(semver, "minor"), bumped(semver, "major")) == (patch, minor, major)
