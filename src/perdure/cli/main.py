"""The entry point: finds the commands, and turns what they raise into one line and an exit code.

To add a command, add ``cli/commands/<name>.py`` with a `click.Command` called ``command``; nothing else knows of it.

====  ==============================================================================
0     success
1     the run failed, was cancelled or timed out; or something was found (``verify``)
2     wrong usage, or an environment that cannot be used; an unknown run id too
3     the run is parked
130   interrupted
====  ==============================================================================
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TextIO

import click

from perdure.cli import commands
from perdure.cli.output import escape
from perdure.errors import PerdureError, RunCancelled, RunFailed, RunParked, RunTerminated, RunTimedOut

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED, USAGE, PARKED, INTERRUPTED = 1, 2, 3, 130
_ENDED = (RunFailed, RunCancelled, RunTimedOut, RunTerminated)


class CommandFolder(click.Group):
    """A group whose commands are the files of a folder. A file is imported only when its command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the files, as commands are written."""
        names = (module.name for module in iter_modules(commands.__path__))
        return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one file and return its ``command``."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"{commands.__name__}.{cmd_name.replace('-', '_')}")
        command = module.command
        if not isinstance(command, click.Command):
            message = f"{module.__name__}.command is not a click command"
            raise TypeError(message)
        return command


@click.command(
    cls=CommandFolder,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 success, 1 the run failed or something was found, 2 usage or environment, 3 parked, "
    "130 interrupted.",
)
@click.version_option(package_name="perdure", message="%(prog)s %(version)s")
def perdure() -> None:
    """Durable workflows: a run finishes, once, on the code it began with."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        _never_fail_on_a_character(stream)
    code = run(argv)
    with suppress(OSError):
        sys.stdout.flush()
    sys.exit(code)


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; every error is told here."""
    try:
        code = perdure.main(args=None if argv is None else list(argv), prog_name="perdure", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        say(f"error: {_usage(error)}")
        return USAGE
    except PerdureError as error:
        say(f"error: {error}")
        return exit_code(error)
    except BrokenPipeError:
        # Whoever read our output has seen enough. What is still buffered must not raise at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        say(f"error: {error}")
        return USAGE
    except Exception:  # noqa: BLE001 - the last place: a defect of ours, told in full
        say(f"error: this is a defect of perdure, please report it\n{traceback.format_exc()}", lines=True)
        return FAILED


def exit_code(error: PerdureError) -> int:
    """Return the exit code that an error stands for."""
    if isinstance(error, RunParked):
        return PARKED
    return FAILED if isinstance(error, _ENDED) else USAGE


def say(text: str, *, lines: bool = False) -> None:
    """Write one line to standard error; with ``lines``, the text as it is, line by line."""
    shown = "\n".join(map(escape, text.splitlines())) if lines else escape(text)
    with suppress(OSError):
        click.echo(shown, err=True)


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    text = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.UsageError) and context is not None:
        return f"{text}; see `{context.command_path} --help`"
    return text


def _never_fail_on_a_character(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
