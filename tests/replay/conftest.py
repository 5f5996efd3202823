"""No check calls a step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel.outside import Outside, enter


@pytest.fixture(autouse=True)
def no_step_is_called_by_a_check() -> Iterator[None]:
    """Whatever a test checks: a step that is called would be counted here."""
    outside = enter(Outside())
    yield
    assert not outside.calls
