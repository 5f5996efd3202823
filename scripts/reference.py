"""Write the reference pages that follow from the code: ``docs/reference/cli.md`` and ``docs/reference/settings.md``.

Run it after a change of a command or a setting: ``python scripts/reference.py``. A test fails while a page is not
current.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import click
from msgspec.structs import fields

from perdure.api.engine import DEFAULT_URL, Engine
from perdure.api.settings import COUNTS, DURATIONS
from perdure.api.versioning import VersionOptions
from perdure.cli import telling
from perdure.cli.main import perdure
from perdure.runtime.settings import Settings

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
NOTE = "<!-- Written by scripts/reference.py from the code. Change the code, then run it again. -->"
CONTEXT = click.Context(perdure, info_name="perdure")


def cli_page() -> str:
    """Return the page on the command line."""
    lines = [NOTE, "", "# Command line", ""]
    lines += [
        "Targets are `package.module:workflow`, `package.module` or `file.py[:workflow]`. A plain number counts as"
    ]
    lines += [
        "seconds where a duration is asked for. Tables are for people; with `--json` every value is printed whole."
    ]
    lines += ["", "## Exit codes", "", "| code | meaning |", "|---|---|", *_exit_codes(), "", "## Commands", ""]
    names = perdure.list_commands(CONTEXT)
    commands = [perdure.get_command(CONTEXT, name) for name in names]
    shown = [command for command in commands if command is not None]
    lines += ["| command | does |", "|---|---|"]
    lines += [f"| [`{one.name}`](#perdure-{one.name}) | {_cell(_paragraphs(one)[0])} |" for one in shown]
    for command in shown:
        lines += ["", *_command(command)]
        if isinstance(command, click.Group):
            for name in command.list_commands(CONTEXT):
                part = command.get_command(CONTEXT, name)
                if part is not None:
                    lines += ["", *_command(part, f"{command.name} {name}", "####")]
    return "\n".join(lines) + "\n"


def _exit_codes() -> list[str]:
    rows = re.findall(r"^(\d+) +(\S.*(?:\n {6}.*)*)", telling.__doc__ or "", re.MULTILINE)
    return [f"| {code} | {_cell(text)} |" for code, text in rows]


def _paragraphs(command: click.Command) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")]


def _command(command: click.Command, path: str | None = None, level: str = "###") -> list[str]:
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    path = path or str(command.name)
    usage = " ".join(["perdure", path, *(one.metavar or str(one.name).upper() for one in arguments)])
    more = "COMMAND" if isinstance(command, click.Group) else "[OPTIONS]"
    lines = [f"{level} `perdure {path}`", "", f"`{usage} {more}`"]
    for paragraph in _paragraphs(command):
        lines += ["", paragraph]
    options = [one for one in command.params if isinstance(one, click.Option)]
    if options:
        lines += ["", "| option | default | |", "|---|---|---|"]
        lines += [f"| {_flags(one)} | {_default(one)} | {_cell(one.help or '')}{_variable(one)} |" for one in options]
    return lines


def _flags(option: click.Option) -> str:
    flags = ", ".join(option.opts)
    return f"`{flags}`" if option.is_flag else f"`{flags} {_metavar(option)}`"


def _metavar(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "\\|".join(map(str, option.type.choices))
    return {"integer": "N", "integer range": "N", "text": "TEXT"}.get(option.type.name, option.type.name.upper())


def _default(option: click.Option) -> str:
    if option.is_flag or not option.show_default or option.default is None:
        return ""
    values = option.default if isinstance(option.default, tuple | list) else (option.default,)
    return ", ".join(f"`{value}`" for value in values)


def _variable(option: click.Option) -> str:
    return f" Also: `${option.envvar}`." if isinstance(option.envvar, str) else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("``", "`")


def settings_page() -> str:
    """Return the page on settings."""
    documented = _documented(Engine)
    lines = [
        NOTE,
        "",
        "# Settings",
        "",
        "Given to `Engine(...)` and `SyncEngine(...)`; the command line has the same names.",
    ]
    lines += ['A duration is a number of seconds, a `timedelta`, or text such as `"200ms"`, `"30s"`, `"2h"`.']
    lines += ["", "| setting | default | |", "|---|---|---|"]
    for name, parameter in inspect.signature(Engine.__init__).parameters.items():
        if name in documented and parameter.kind is not parameter.VAR_KEYWORD:
            lines.append(_row(name, _literal(name, parameter.default), documented[name]))
    lines += ["", "## Further settings", "", "| setting | default | |", "|---|---|---|"]
    described = _documented(Settings, "Attributes")
    defaults = {field.name: field.default for field in fields(Settings)}
    for name in sorted([*DURATIONS, *COUNTS, "max_bytes"]):
        stored = DURATIONS.get(name, name)
        default = _span(defaults[stored]) if name in DURATIONS else f"`{defaults[stored]}`"
        lines.append(_row(name, default, described[stored]))
    lines.append(_row("name", "host and process id", "name of the worker, as people see it."))
    lines.append(_row("codecs", "`('json',)`", "how values are stored; see the codecs."))
    lines += _version_settings()
    lines += ["", "## Database", "", "| URL | |", "|---|---|"]
    lines += ["| `sqlite:///file.db` | a file, relative to the current folder |"]
    lines += ["| `sqlite:////folder/file.db` | a file by its full path |"]
    lines += ["| `sqlite://` | in memory, gone with the process |"]
    lines += ["", f"Where none is given, the environment variable `PERDURE_DB` is used, else `{DEFAULT_URL}`."]
    return "\n".join(lines) + "\n"


def _version_settings() -> list[str]:
    lines = ["", "## Versions", "", "| setting | default | |", "|---|---|---|"]
    described = _documented(VersionOptions, "Attributes")
    for field in fields(VersionOptions):
        name = field.name.removesuffix("_s")
        default = f"`{field.default:g}` s" if name != field.name else f"`{field.default!r}`"
        lines.append(_row(name, default, described[field.name]))
    return lines


def _documented(what: type, section: str = "Args") -> dict[str, str]:
    text = inspect.cleandoc(what.__doc__ or "")
    body = re.split(rf"^{section}:$", text, flags=re.MULTILINE)[1]
    body = re.split(r"^\S", body, maxsplit=1, flags=re.MULTILINE)[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", body, re.MULTILINE)
    return {name: " ".join(told.split()) for name, told in entries}


def _literal(name: str, value: Any) -> str:
    if name == "url":
        return f"`$PERDURE_DB`, else `{DEFAULT_URL}`"
    return f"`{value!r}`"


def _span(microseconds: Any) -> str:
    return f"`{microseconds / 1_000_000:g}` s"


def _row(name: str, default: str, text: str) -> str:
    return f"| `{name}` | {default} | {_cell(text)} |"


PAGES = {"cli.md": cli_page, "settings.md": settings_page}


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
