"""Something an operator should read that stops nothing."""

from __future__ import annotations

from typing import NamedTuple


class Notice(NamedTuple):
    """One line for the log, with a stable code for metrics and tests."""

    code: str
    text: str
