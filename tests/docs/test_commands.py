"""Commands and options that the pages name are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from perdure.cli.main import perdure
from tests.docs.blocks import blocks, pages
from tests.house.tree import ROOT

INLINE = re.compile(r"`(perdure [^`\n]+)`")
CONTEXT = click.Context(perdure, info_name="perdure")
WRITTEN = ("docs/reference/cli.md",)


def commands_of(page: Path) -> list[str]:
    """Return the command lines a page names, in its text, its blocks and its unit files."""
    found = INLINE.findall(page.read_text("utf-8"))
    for block in blocks(page):
        if block.language in ("text", "console"):
            lines = (re.sub(r"^(\$ |ExecStart=\S*/)", "", line) for line in block.text.splitlines())
            found += [line.removesuffix("&") for line in lines if line.startswith("perdure ")]
    return found


PAGES = [page for page in pages() if str(page.relative_to(ROOT)) not in WRITTEN and commands_of(page)]


def fault(line: str) -> str | None:
    words = shlex.split(line)[1:]
    name = words[0]
    if name.startswith("-"):
        return None
    command = perdure.get_command(CONTEXT, name)
    if command is None:
        return f"no command {name!r}"
    if isinstance(command, click.Group) and len(words) > 1 and not words[1].startswith("-"):
        part = command.get_command(CONTEXT, words[1])
        if part is None:
            return f"{name} has no command {words[1]!r}"
        command = part
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{name} has no {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_a_page_names_is_there(page: Path) -> None:
    faults = [f"{line}: {found}" for line in commands_of(page) if (found := fault(line)) is not None]
    assert not faults


def test_a_wrong_command_is_found() -> None:
    assert fault("perdure frobnicate x") == "no command 'frobnicate'"
    assert fault("perdure list --nothing") == "list has no --nothing"
    assert fault("perdure list --status failed") is None
    assert fault("perdure queues frobnicate mail") == "queues has no command 'frobnicate'"
    assert fault("perdure queues pause mail --reason slow") is None
