"""What reaches a terminal: nothing stored can move the cursor, hide or reverse text."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from perdure.cli.output import ago, as_json, escape, width
from tests.cli.conftest import FLOWS, Shell

HOSTILE = "a\x1b[31mred\x07\r\nb\u202e\u2066c\x9bd\x7f\u2028e\udc80"


def is_harmless(text: str) -> bool:
    return all(character == "\n" or character.isprintable() for character in text)


def test_escape_makes_everything_visible_and_keeps_the_rest() -> None:
    shown = escape(HOSTILE)
    assert shown == "a\\x1b[31mred\\x07\\r\\nb\\u202e\\u2066c\\x9bd\\x7f\\u2028e\\udc80"
    assert escape("plain, äöü, 漢字, 👩\u200d🚀") == "plain, äöü, 漢字, 👩\u200d🚀"


@pytest.mark.parametrize("value", [HOSTILE, {HOSTILE: [HOSTILE]}, "\U000e0001", "👩\u200d🚀", 2**80, float("nan")])
def test_json_is_harmless_and_says_the_same(value: object) -> None:
    shown = as_json(value)
    assert is_harmless(shown.replace("\u200d", ""))
    if isinstance(value, str | dict):
        assert json.loads(shown) == value


def test_json_has_a_form_for_everything() -> None:
    assert as_json({"a": Decimal("1.50"), "b": {3, 1}, "c": b"x"}) == '{"a":"1.50","b":[1,3],"c":"eA=="}'
    assert as_json(object).startswith('"<class')


def test_columns_are_aligned_by_width_on_the_terminal() -> None:
    assert [width(text) for text in ("abc", "漢字", "e\u0301", "👩\u200d🚀")] == [3, 4, 1, 4]


@pytest.mark.parametrize("seconds,text", [(0, "0s"), (59.6, "1m"), (61, "1m 1s"), (90_061, "1d 1h"), (-3, "0s")])
def test_spans_of_time_are_short(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def test_case_sec_03(shell: Shell) -> None:
    """SEC-03, the terminal: control bytes, direction marks and line ends in ids, names, tags, input and errors.

    Source: Parallels/rq-dashboard#526; mher/flower#594, mher/flower#1041; sidekiq/sidekiq#1297.
    """
    run_id, mark = "r\u202eid\u2066", "\u202etag\x9b31m"
    told = shell("run", f"{FLOWS}:boom", "--id", run_id, "--arg", f"text={HOSTILE[:-1]}", "--tag", f"t={mark}")
    assert told.code == 1
    shown = [told]
    shown += [
        shell(*words) for words in (["list"], ["show", run_id], ["history", run_id], ["history", run_id, "--full"])
    ]
    shown += [shell(*words, "--json") for words in (["list"], ["show", run_id], ["history", run_id])]
    shown += [shell("cancel", run_id), shell("show", HOSTILE), shell("retry", "\x1b[2Jx"), shell("start", "\x1b[2Jx")]
    shown += [shell("run", "\x1b]0;x\x07.py"), shell("list", "--tag", HOSTILE), shell(HOSTILE), shell("doctor")]
    shown.append(shell("run", f"{FLOWS}:named", "--id", "n", "--arg", f"name={mark}", "--arg", f"text={HOSTILE[:-1]}"))
    shown += [shell(*words, *more, "n") for more in ([], ["--json"]) for words in (["show"], ["history"])]
    shown += [shell("list", "--limit", "1", "--cursor", "n"), shell("start", mark, "--queue", mark), shell("doctor")]
    for one in shown:
        assert is_harmless(one.out), one.out
        assert is_harmless(one.err), one.err
    assert "\\u202eid" in shown[1].out
    assert "value \\u202etag" in "".join(one.out for one in shown)
    assert "\\x1b[31mred" in shown[2].out
