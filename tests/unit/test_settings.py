"""A setting that does not exist is refused with the names there are."""

from __future__ import annotations

import pytest

import perdure


def test_a_misspelt_setting_is_answered_with_all_there_are() -> None:
    with pytest.raises(perdure.UsageError, match="there is no setting 'lese'") as caught:
        perdure.Engine("sqlite://", lese="2s")
    for name in ("lease", "grace", "concurrency", "durability", "threads"):
        assert name in str(caught.value)
