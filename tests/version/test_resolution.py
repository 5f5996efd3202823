"""What a request for a version means, and what is said where it means nothing."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidValue, UnknownVersion, VersionClosed, VersionPurged
from perdure.version.resolution import resolve
from tests.version.histories import BAD, NEW, OLD, History, published

PUBLISHED = ((OLD, "1.3.0"), ("5f2a9c1e" + "9" * 56, "1.3.0"), (NEW, "1.4.0"), (BAD, "2.0.0-rc.1"))


@pytest.mark.parametrize(
    "requested,label",
    [
        ("1.3.0", "1.3.0"),
        ("1.3.0+5f2a9c1e", "1.3.0+5f2a9c1e"),
        ("2.0.0-rc.1", "2.0.0-rc.1"),
        ("77aa77aa", "1.4.0"),
        (NEW, "1.4.0"),
        ("5f2a9c1e0", "1.3.0"),
        (">=1.2,<2", "1.4.0"),
        (">=1.2,<1.4", "1.3.0+5f2a9c1e"),
        (">=2.0.0-rc.1", "2.0.0-rc.1"),
        (">=1", "1.4.0"),
    ],
)
def test_a_request_means_one_label(requested: str, label: str) -> None:
    assert resolve(published(*PUBLISHED).known, requested).text == label


@pytest.mark.parametrize("requested", ["1.5.0", "77aa77a", "77AA77AA", "77aa77ab", "", "latest", ">=2", "<1"])
def test_a_request_may_mean_nothing(requested: str) -> None:
    with pytest.raises(UnknownVersion, match=r"^order has no version"):
        resolve(published(*PUBLISHED).known, requested)


def test_the_message_lists_what_there_is() -> None:
    history = published((OLD, "1.3.0"), ("5f2a9c1e" + "9" * 56, "1.3.0"), (NEW, "1.4.0"))
    with pytest.raises(UnknownVersion) as raised:
        resolve(history.known, "1.5.0")
    assert str(raised.value) == "order has no version 1.5.0. Newest: 1.4.0. Known: 1.4.0, 1.3.0+5f2a9c1e, 1.3.0."
    with pytest.raises(UnknownVersion) as raised:
        resolve(History().known, "1.5.0")
    assert str(raised.value) == "order has no version 1.5.0. None is published."


def test_a_long_list_is_cut() -> None:
    history = published(*((f"{number:064x}", f"1.{number}.0") for number in range(30)))
    with pytest.raises(UnknownVersion, match=r"Known: 1\.29\.0, (1\.\d+\.0, ){8}1\.20\.0, \.\.\.\.$"):
        resolve(history.known, "7.0.0")


def test_a_beginning_of_two_hashes_is_refused() -> None:
    with pytest.raises(UnknownVersion) as raised:
        resolve(published(*PUBLISHED).known, "5f2a9c1e")
    assert str(raised.value) == "order has 2 versions that begin with 5f2a9c1e. Give more digits."


def test_a_withdrawn_version_is_reached_by_name_only() -> None:
    history = published(*PUBLISHED)
    history.mark(NEW, "withdrawn")
    assert resolve(history.known, "1.4.0").text == resolve(history.known, "77aa77aa").text == "1.4.0"
    assert resolve(history.known, ">=1").text == "1.3.0+5f2a9c1e"


def test_a_closed_or_purged_version_takes_no_runs() -> None:
    history = published((OLD, "1.1.0"), (NEW, "1.2.0"))
    history.mark(OLD, "closed")
    for requested in ("1.1.0", OLD[:8]):
        with pytest.raises(VersionClosed) as closed:
            resolve(history.known, requested)
        assert str(closed.value) == (
            'order@1.1.0 was closed on 2026-03-02 by ana ("double charge"); it takes no new runs.'
        )
    history.mark(OLD, "purged")
    with pytest.raises(VersionPurged) as purged:
        resolve(history.known, "1.1.0")
    assert str(purged.value) == 'order@1.1.0 was purged on 2026-03-02 by ana ("double charge"); its code is gone.'
    assert history.newest == NEW


def test_what_begins_like_a_range_must_be_one() -> None:
    with pytest.raises(InvalidValue, match=r"version='>=one' is no range|is no semantic version"):
        resolve(published(*PUBLISHED).known, ">=one")
