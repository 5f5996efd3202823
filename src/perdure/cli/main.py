"""The entry point: finds the commands, and turns what they raise into one line and an exit code.

To add a command, add ``cli/commands/<name>.py`` with a `click.Command` called ``command``; nothing else knows of it.
The exit codes are those of `perdure.cli.telling`.
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

from perdure import __version__
from perdure.cli import commands, serving
from perdure.cli.telling import FAILED, INTERRUPTED, USAGE, Crashed, exit_code, say, say_lines
from perdure.errors import PerdureError, RunFailed

if TYPE_CHECKING:
    from collections.abc import Sequence


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
@click.version_option(__version__, message="%(prog)s %(version)s")
def perdure() -> None:
    """Durable workflows: finished steps are recorded, and runs go on after a crash."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        _never_fail_on_a_character(stream)
    code = run(argv)
    with suppress(OSError):
        sys.stdout.flush()
    if serving.must_leave():
        serving.leave(code)
    sys.exit(code)


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; every error is told here."""
    try:
        return _invoke(list(sys.argv[1:] if argv is None else argv))
    except click.exceptions.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        say(f"error: {_usage(error)}")
        return USAGE
    except PerdureError as error:
        if isinstance(error, RunFailed):
            say_lines(error.traceback_text)
        say(f"error: {error}")
        return exit_code(error)
    except Crashed as error:
        say(f"error: {error}")
        return FAILED
    except BrokenPipeError:
        # Whoever read our output has seen enough. What is still buffered must not raise at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        say(f"error: {error}")
        return USAGE
    except Exception:  # noqa: BLE001 - the last place: a defect of ours, told in full
        say_lines(traceback.format_exc())
        say("error: this is a defect of perdure, please report it")
        return FAILED


def _invoke(argv: list[str]) -> int:
    if "_PERDURE_COMPLETE" in os.environ:  # a shell asks for completions; click has its own way out for that
        perdure.main(argv, prog_name="perdure")
    # Not `main`: it would turn an output that nobody reads into exit code 1.
    with perdure.make_context("perdure", argv) as context:
        code = perdure.invoke(context)
    return code if isinstance(code, int) else 0


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
