"""The reference pages say what the code says."""

from __future__ import annotations

import click
import pytest

from perdure.cli.main import perdure
from scripts import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_page_is_current(name: str) -> None:
    written = (reference.FOLDER / name).read_text("utf-8")
    assert written == reference.PAGES[name](), "run `python scripts/reference.py`"


def test_every_option_has_a_help_text() -> None:
    for name in perdure.list_commands(reference.CONTEXT):
        command = perdure.get_command(reference.CONTEXT, name)
        assert command is not None
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.help, f"{name}: {parameter.name}"
