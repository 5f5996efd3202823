"""Exit codes, and single lines on standard error.

====  ==============================================================================
0     success
1     the run failed, was cancelled or timed out; something was found (``verify``,
      ``doctor``, ``versions check``, a change without a new number where that is
      refused); a worker could not go on
2     wrong usage, or an environment that cannot be used; an unknown run id too
3     the run is parked
130   interrupted
====  ==============================================================================
"""

from __future__ import annotations

from contextlib import suppress

import click

from perdure.cli.output import escape
from perdure.errors import PerdureError, RunCancelled, RunFailed, RunParked, RunTerminated, RunTimedOut, UnbumpedChange

FAILED, USAGE, PARKED, INTERRUPTED = 1, 2, 3, 130
_FOUND = (RunFailed, RunCancelled, RunTimedOut, RunTerminated, UnbumpedChange)


class Crashed(Exception):
    """The engine cannot go on. Never exit code 0, so that whoever watches the process starts it again."""


def exit_code(error: PerdureError) -> int:
    """Return the exit code that an error stands for."""
    if isinstance(error, RunParked):
        return PARKED
    return FAILED if isinstance(error, _FOUND) else USAGE


def say(text: str) -> None:
    """Write one line to standard error."""
    with suppress(OSError):
        click.echo(escape(text), err=True)


def say_lines(text: str) -> None:
    """Write a text of several lines to standard error, each made harmless."""
    for line in text.splitlines():
        say(line)
