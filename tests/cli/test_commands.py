"""The command folder: every file in it is a command, found without a list."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from perdure.cli import commands, main

FILES = sorted(
    path.stem.replace("_", "-") for path in Path(commands.__path__[0]).glob("*.py") if not path.stem.startswith("_")
)


def test_every_file_of_the_folder_is_a_command() -> None:
    context = click.Context(main.perdure)
    assert main.perdure.list_commands(context) == FILES
    assert "list" in FILES


@pytest.mark.parametrize("name", FILES)
def test_every_command_has_the_name_of_its_file_and_a_help_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = main.perdure.get_command(click.Context(main.perdure), name)
    assert command is not None
    assert command.name == name
    assert command.help
    assert main.run([name, "--help"]) == 0
    assert f"perdure {name}" in capsys.readouterr().out


def test_an_unknown_command_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["frobnicate"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert "frobnicate" in shown.err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in FILES)


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 2
    assert "Commands:" in capsys.readouterr().err
