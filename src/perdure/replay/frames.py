"""What a pool and its processes say to each other: MessagePack, each message after its length."""

from __future__ import annotations

from typing import Any, NamedTuple

from perdure.replay.code import Place
from perdure.replay.verdict import Finding

LENGTH_BYTES = 8


class Order(NamedTuple):
    """The first message: what is to be checked against."""

    path: list[str]
    """Where modules are found."""
    places: dict[str, Place]
    """Recorded name of a workflow to where its code is."""
    codec: str
    options: dict[str, Any]
    """Options of the codec."""
    patience_s: float
    job: bytes = b""
    """In place of the path and the places: the stored version that is checked against, as a version host is told."""


class Answer(NamedTuple):
    """To the order: that all is loaded, or why not. To each history: what was found."""

    error: str = ""
    finding: Finding | None = None
