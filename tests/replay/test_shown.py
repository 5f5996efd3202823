"""Two values side by side: the difference is in sight."""

from __future__ import annotations

from perdure.replay.shown import MOST, both


def test_short_values_are_shown_whole() -> None:
    assert both(b'{"$":"tuple","v":[1]}', b"[2]") == ("[1]", "[2]")
    assert both(None, b"null") == ("nothing", "null")


def test_long_values_are_cut_around_the_first_difference() -> None:
    one, two = both(b'"%s1"' % (b"x" * 500), b'"%s2 and on%s"' % (b"x" * 500, b"y" * 500))
    assert one == '…xxxxxxxxxxxxxxxxxxxx1"'
    assert two.startswith("…xxxxxxxxxxxxxxxxxxxx2 and on")
    assert len(two) == MOST


def test_values_that_differ_in_type_only_are_shown_as_they_are_stored() -> None:
    assert both(b'{"$":"tuple","v":[1]}', b"[1]") == ('{"$":"tuple","v":[1]}', "[1]")
    assert both(b"\x00p12", b"\x00p13")[0].startswith("\x00p12")
