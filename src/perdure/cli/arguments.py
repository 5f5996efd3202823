"""The arguments of a workflow as they are typed: ``--input`` with JSON, or ``--arg name=value``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure.api.starting import json_arguments
from perdure.cli import options
from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.api.decorators import Workflow

F = TypeVar("F", bound="Callable[..., Any]")
Call = tuple[tuple[Any, ...], dict[str, Any]]


def given(command: F) -> F:
    """Add ``--input`` and ``--arg``."""
    command = click.option(
        "--arg", "named", multiple=True, type=options.PAIR,
        help="One argument; JSON, or text as it stands. May be repeated.",
    )(command)  # fmt: skip
    return click.option(
        "--input", "text", metavar="JSON",
        help="The arguments: an object gives them by name, an array in order, anything else is the only one. "
        "- reads standard input.",
    )(command)  # fmt: skip


def parse(workflow: Workflow[Any, Any] | None, name: str, text: str | None, named: tuple[tuple[str, str], ...]) -> Call:
    """Return the arguments, checked against the workflow's signature where it is known.

    Raises:
        UsageError: not JSON, both ways at once, a name twice; or the workflow does not take them.
    """
    if text is not None and named:
        message = "--input and --arg cannot be given together"
        raise UsageError(message)
    if len({key for key, _ in named}) < len(named):
        message = "--arg gives one name twice"
        raise UsageError(message)
    if text == "-":
        text = sys.stdin.read()
    hints: dict[str, Any] = {} if workflow is None else workflow.definition.signature.hints
    if text is None:
        text = json.dumps({key: _value(value, hints.get(key, Any)) for key, value in named})
    if workflow is not None:
        return json_arguments(workflow.definition, text)
    return _plain(name, text)


def _value(text: str, hint: Any) -> Any:
    if hint is str:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _plain(name: str, text: str) -> Call:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{name}: the input is not JSON: {error}"
        raise UsageError(message) from None
    if isinstance(value, dict):
        return (), value
    return (tuple(value), {}) if isinstance(value, list) else ((value,), {})
