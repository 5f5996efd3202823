"""Logging of the command line: to standard error, one line per record, with nothing that could act on a terminal."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from perdure.cli.output import escape

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

LEVELS = ("debug", "info", "warning", "error")


class SafeFormatter(logging.Formatter):
    """A record is one line, whatever was logged; only a traceback adds lines."""

    converter: Callable[[float | None], time.struct_time] = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format: str | None = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line."""
        return escape(super().formatMessage(record))

    def formatException(  # noqa: N802 - logging's name
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Return the traceback."""
        return "\n".join(map(escape, super().formatException(ei).splitlines()))


def configure(level: str) -> None:
    """Log to standard error from ``level`` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Only where something is wrong with itself does it have something to say; at debug it repeats payloads.
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
