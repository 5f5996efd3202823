"""A pytest plugin for `scripts.parity`: writes down what was collected. ``-p scripts.collected --collected FILE``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GIVEN = ("kind", "database", "dialect", "world", "make", "path")
"""Parameters that say which database a test is given, or which ones: a text, or several."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the name of the file."""
    parser.addoption("--collected", help="file to write")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write one object for each case of each test."""
    told = [_told(item) for item in session.items if isinstance(item, pytest.Function)]
    Path(session.config.getoption("--collected")).write_text(json.dumps(told), "utf-8")


def _told(item: pytest.Function) -> dict[str, Any]:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    given = [parameters[name] for name in GIVEN if name in parameters]
    return {
        "file": item.nodeid.partition("::")[0],
        "of": item.function.__qualname__.rpartition(".")[0],
        "name": item.function.__name__,
        "given": [" ".join(one) if isinstance(one, tuple) else str(one) for one in given],
        "fixtures": list(item.fixturenames),
        "nightly": item.get_closest_marker("nightly") is not None or item.get_closest_marker("bench") is not None,
    }
