"""Texts that are too long to be stored are cut, once."""

from __future__ import annotations

import pytest

from perdure.codec.exception import MOST_TEXT, cut


@pytest.mark.parametrize("length", [MOST_TEXT + 1, 10**6])
def test_a_text_that_was_cut_is_not_cut_again(length: int) -> None:
    once = cut("x" * length)
    assert len(once) <= MOST_TEXT
    assert cut(once) == once
