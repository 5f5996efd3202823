"""Options that several commands share, and the types of their values."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure.cli.logs import LEVELS
from perdure.errors import InvalidValue
from perdure.model.duration import microseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic from click 8.4 on, which nothing here needs when it runs

F = TypeVar("F", bound="Callable[..., Any]")


class DurationType(ParamType):
    """A span of time, kept as the text it was given as."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check a span; a plain number counts as seconds."""
        with suppress(ValueError):
            value = float(value)
        try:
            microseconds(value, "")
        except InvalidValue as error:
            self.fail(str(error).removeprefix(" "), param, ctx)
        return value


class PairType(ParamType):
    """``name=value``."""

    name = "k=v"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Split at the first equals sign."""
        if isinstance(value, tuple):
            return value
        name, sign, rest = value.partition("=")
        if not name or not sign:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name, rest


class MomentType(ParamType):
    """A point in time: ISO 8601 (UTC where no zone is given), or a span such as ``2h`` that counts back from now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an aware time."""
        if isinstance(value, datetime):
            return value
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        try:
            return datetime.now(UTC) - timedelta(microseconds=microseconds(value, "time"))
        except (InvalidValue, OverflowError):
            self.fail(f"{value!r} is neither a time such as 2026-05-01T12:00 nor a span such as 2h", param, ctx)


class VersionType(ParamType):
    """``WORKFLOW@VERSION``."""

    name = "workflow@v"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Split at the last at sign: a version has none."""
        if isinstance(value, tuple):
            return value
        workflow, sign, version = value.rpartition("@")
        if not sign or not workflow or not version:
            self.fail(f"{value!r} is not of the form WORKFLOW@VERSION, such as order@1.3.0", param, ctx)
        return workflow, version


DURATION, PAIR, MOMENT, VERSION = DurationType(), PairType(), MomentType(), VersionType()


def database(command: F) -> F:
    """Add ``--db``."""
    return click.option(
        "--db", metavar="URL", envvar="PERDURE_DB", default="sqlite:///perdure.db", show_default=True, show_envvar=True,
        help="Database.",
    )(command)  # fmt: skip


def as_json(command: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def acting(command: F) -> F:
    """Add ``--actor`` and ``--reason``."""
    command = click.option("--reason", help="Why; kept in the log.")(command)
    return click.option("--actor", help="Who acts; kept in the log. The system user by default.")(command)


def acting_for_a_reason(command: F) -> F:
    """Add ``--actor`` and a ``--reason`` that must be given."""
    command = click.option("--reason", required=True, help="Why; kept in the record of changes.")(command)
    return click.option("--actor", help="Who acts; kept in the record. The system user by default.")(command)


def channel(command: F) -> F:
    """Add ``--channel``."""
    return click.option(
        "--channel", metavar="C", default="default", show_default=True,
        help="Name of the route; `default` is that of starts which name none.",
    )(command)  # fmt: skip


def sources(command: F) -> F:
    """Add what says where first-party code is."""
    command = click.option(
        "--bootstrap", metavar="M:F", default="",
        help="Module and function that set the application up in version hosts; it belongs to every version.",
    )(command)  # fmt: skip
    return click.option(
        "--package", "packages", metavar="NAME", multiple=True,
        help="First-party package; may be repeated. By default those of the workflows.",
    )(command)  # fmt: skip


def tags(command: F) -> F:
    """Add ``--tag``."""
    return click.option("--tag", multiple=True, type=PAIR, help="Tag to list runs by; may be repeated.")(command)


def log_level(default: str) -> Callable[[F], F]:
    """Return what adds ``--log-level``."""
    return click.option(
        "--log-level", type=click.Choice(LEVELS), default=default, show_default=True, help="Log on standard error."
    )
