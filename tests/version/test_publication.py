"""The table of what a registration leads to, row by row, and which version is the default after it."""

from __future__ import annotations

import random

import pytest

from perdure.errors import InvalidValue, NotPublished, UnbumpedChange
from perdure.version.known import KnownVersion
from perdure.version.publication import Decision
from tests.version.histories import BAD, NEW, OLD, History, published


def said(decision: Decision) -> list[tuple[str, str]]:
    return [(notice.code, notice.text) for notice in decision.notices]


def test_a_known_pair_is_nothing_new() -> None:
    history = published((OLD, "1.3.0"))
    decision = history.register(OLD, "1.3.0")
    assert (decision.action, decision.label, said(decision)) == ("seen", "1.3.0", [])


def test_a_thousand_starts_make_one_version_and_one_label() -> None:
    history = published((OLD, "1.3.0"), (BAD, "1.3.0"))
    for _ in range(1000):
        assert history.register(OLD, "1.3.0").action == history.register(BAD, "1.3.0").action == "seen"
    assert (len(history.versions), history.texts) == (2, ["1.3.0", "1.3.0+d8ad199c"])


def test_known_content_with_a_new_number_gets_one_more_label() -> None:
    history = published((OLD, "1.3.0"))
    decision = history.register(OLD, "1.5.0")
    assert (decision.action, decision.label, len(history.versions)) == ("label", "1.5.0", 1)
    assert said(decision) == [("same_content", "order 1.5.0 has the same content as 1.3.0; labelled, no new version.")]


def test_new_content_with_a_new_number_is_a_version() -> None:
    history = published((OLD, "1.3.0"))
    decision = history.register(NEW, "1.4.0")
    assert (decision.action, decision.version, decision.label, said(decision)) == ("version", None, "1.4.0", [])
    assert history.newest == NEW


def test_an_unbumped_change_is_labelled_apart() -> None:
    history = published((OLD, "1.3.0"))
    decision = history.register(NEW, "1.3.0")
    assert (decision.action, decision.label, decision.semver) == ("version", "1.3.0+77aa77aa", "1.3.0")
    assert history.newest == NEW


def test_an_unbumped_change_is_refused_where_that_is_the_policy() -> None:
    history = published((OLD, "1.3.0"))
    asked: list[KnownVersion] = []

    def differing(version: KnownVersion) -> list[str]:
        asked.append(version)
        return ["shop/flow.py", "shop/pay.py"]

    new = "5f2a9c1e" + "9" * 56
    with pytest.raises(UnbumpedChange) as raised:
        history.register("0" * 64, "1.3.0", on_unbumped="refuse", differing=differing)
    assert str(raised.value) == (
        "order 1.3.0 is already published with other content (shop/flow.py, shop/pay.py differ). Bump the version, or "
        'set on_unbumped="auto" to publish 1.3.0+00000000.'
    )
    assert [version.sha256 for version in asked] == [OLD]
    with pytest.raises(UnbumpedChange, match=r"set on_unbumped=\"auto\" to publish 1\.3\.0\+5f2a9c1e\."):
        history.register(new, "1.3.0", on_unbumped="refuse")
    assert history.texts == ["1.3.0"]


@pytest.mark.parametrize(
    "names,text",
    [
        (["shop/flow.py"], "(shop/flow.py differs)"),
        (["a.py", "the config"], "(a.py, the config differ)"),
        (list("abcdefg"), "(a, b, c, d, e and 2 more differ)"),
    ],
)
def test_a_refusal_names_what_differs(names: list[str], text: str) -> None:
    with pytest.raises(UnbumpedChange) as raised:
        published((OLD, "1.3.0")).register(NEW, "1.3.0", on_unbumped="refuse", differing=lambda _: names)
    assert text in str(raised.value)


def test_known_content_under_a_number_of_other_content() -> None:
    """The code was reverted and the number left alone."""
    history = published((OLD, "1.3.0"), (BAD, "1.4.0"))
    with pytest.raises(UnbumpedChange):
        history.register(OLD, "1.4.0", on_unbumped="refuse")
    decision = history.register(OLD, "1.4.0")
    assert (decision.action, decision.label) == ("label", "1.4.0+5f2a9c1e")
    assert history.newest == OLD


def test_without_a_number_each_content_has_a_label() -> None:
    history = History()
    assert history.register(OLD, None).label == "0.0.0+5f2a9c1e"
    assert history.register(NEW, None, on_unbumped="refuse").label == "0.0.0+77aa77aa"
    assert history.register(OLD, None).action == "seen"
    assert history.newest == NEW


def test_a_lower_number_is_registered_and_is_not_the_default() -> None:
    history = published((OLD, "1.4.0"))
    decision = history.register(NEW, "1.3.1")
    assert said(decision) == [("lower_than_default", "order 1.3.1 is lower than 1.4.0, so it is not the default.")]
    assert (decision.action, history.newest) == ("version", OLD)


def test_a_pre_release_is_never_the_default() -> None:
    history = published((OLD, "1.4.0"))
    decision = history.register(NEW, "2.0.0-rc.1")
    text = "order 2.0.0-rc.1 is a pre-release, so it is not the default; new runs start on 1.4.0."
    assert said(decision) == [("pre_release", text)]
    assert history.newest == OLD
    assert published((NEW, "2.0.0-rc.1")).newest is None


def test_only_published_code_may_run_where_that_is_the_rule() -> None:
    history = published((OLD, "1.3.0"))
    assert history.register(OLD, "1.3.0", registration="published-only").action == "seen"
    assert history.register(OLD, "1.9.0", registration="published-only").label == "1.3.0"
    with pytest.raises(NotPublished) as raised:
        history.register("5f2a9c1e" + "7" * 56, "1.3.0", registration="published-only")
    assert str(raised.value) == (
        'this worker\'s order (5f2a9c1e) has not been published and registration is "published-only". Run perdure '
        "versions publish."
    )


def test_withdrawn_content_can_be_labelled_and_stays_withdrawn() -> None:
    history = published((OLD, "1.2.0"), (BAD, "1.3.0"))
    history.mark(BAD, "withdrawn")
    assert history.newest == OLD
    assert history.register(BAD, "1.3.0").action == "seen"
    decision = history.register(BAD, "1.5.0")
    assert (decision.action, history.newest) == ("label", OLD)
    (notice,) = decision.notices
    assert notice.code == "withdrawn_content"
    assert notice.text == (
        'order 1.5.0 has the content of 1.3.0, withdrawn on 2026-03-02 by ana ("double charge"). Labelled, not the '
        "default. To allow it: perdure versions restore order@1.5.0."
    )


def test_an_old_worker_that_starts_says_so_and_moves_nothing() -> None:
    history = published((OLD, "1.3.0"), (BAD, "1.4.0"))
    decision = history.register(OLD, "1.3.0")
    text = "new 'order' runs start on 1.4.0, this worker carries 1.3.0; to roll back run: perdure rollback order"
    assert said(decision) == [("older_than_default", text)]
    assert (decision.action, history.newest) == ("seen", BAD)


def test_reverted_and_bumped_the_old_content_is_the_default_again() -> None:
    history = published((OLD, "1.3.0"), (BAD, "1.4.0"), (OLD, "1.5.0"))
    assert history.newest == OLD
    for _ in range(3):  # the bad worker goes on crashing and starting
        history.register(BAD, "1.4.0")
    assert (history.newest, len(history.versions)) == (OLD, 2)


def test_ten_is_above_nine() -> None:
    assert published((NEW, "1.10.0"), (OLD, "1.9.0")).newest == NEW


def test_equal_numbers_are_ordered_by_publication() -> None:
    assert published((OLD, "1.3.0+b1"), (NEW, "1.3.0+b2")).newest == NEW
    assert published((NEW, "1.3.0+b2"), (OLD, "1.3.0+b1")).newest == OLD


def test_a_label_that_is_taken_gets_more_digits() -> None:
    one, two = "5f2a9c1e0" + "0" * 55, "5f2a9c1e1" + "0" * 55
    history = published((NEW, "1.3.0"), (one, "1.3.0"), (two, "1.3.0"))
    assert history.texts == ["1.3.0", "1.3.0+5f2a9c1e", "1.3.0+5f2a9c1e1"]


def test_a_number_that_is_an_automatic_label_of_other_content_is_taken() -> None:
    history = published((OLD, "1.3.0"), (NEW, "1.3.0"))
    assert history.register(BAD, "1.3.0+77aa77aa").label == "1.3.0+77aa77aa.d8ad199c"


def test_a_number_must_be_one() -> None:
    with pytest.raises(InvalidValue, match=r"version of order='v2' is no semantic version"):
        History().register(OLD, "v2")


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_labels_and_pairs_stay_unique(seed: int) -> None:
    dice = random.Random(seed)
    history = History()
    for _ in range(60):
        sha256 = dice.choice(["a", "b"]) * 8 + dice.choice("abc") * 56
        semver = dice.choice([None, "0.0.0", "1.0.0", "1.0.0+aaaaaaaa", "1.1.0", "2.0.0-rc.1"])
        history.register(sha256, semver)
    pairs = [(label.semver, label.version_id) for label in history.labels]
    assert len(set(history.texts)) == len(history.texts)
    assert len(set(pairs)) == len(pairs)
    assert len({version.sha256 for version in history.versions}) == len(history.versions)
