"""Stores for steps that are executed elsewhere."""

from __future__ import annotations

import pytest

from tests.elsewhere.flows import broken, calls, gates, keys, lifted


@pytest.fixture(autouse=True)
def fresh() -> None:
    for one in (calls, keys, gates, broken):
        one.clear()
    lifted.clear()


@pytest.fixture(params=[pytest.param("memory", marks=pytest.mark.nightly), "sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "sqlite:///:memory:"
    found: str = request.getfixturevalue("tmp_db")
    return found
