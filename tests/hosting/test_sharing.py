"""Which versions share a host, and which have one of their own."""

from __future__ import annotations

from perdure.runtime.hosts.sharing import Sharing
from perdure.store.catalog.base import HostedRelease, StoredDefinition, StoredRelease
from perdure.testing.conformance.publishing import project


def hosted(*workflows: str) -> HostedRelease:
    """Return release 71 with a version of each of these workflows, numbered from 1."""
    release, definitions = project({"shop/flow.py": "v1"}, *dict.fromkeys(workflows))
    known = {one.workflow: one for one in definitions}
    found = tuple(
        StoredDefinition(number, known[name], (), "active", None, 71, 0) for number, name in enumerate(workflows, 1)
    )
    return HostedRelease(StoredRelease(71, release, None, 0), found, {}, {})


def carried(sharing: Sharing, name: str, release: HostedRelease) -> list[int]:
    return [one.id for one in sharing.members(name, release)]


def test_all_of_a_release_share_a_host() -> None:
    sharing, release = Sharing(), hosted("order", "refund")
    assert [sharing.host_of(number, release, {}) for number in (1, 2)] == ["71", "71"]
    assert carried(sharing, "71", release) == [1, 2]


def test_two_versions_of_one_workflow_have_a_host_each() -> None:
    sharing, release = Sharing(), hosted("order", "refund", "order")
    assert [sharing.host_of(number, release, {}) for number in (1, 2, 3)] == ["71/1", "71", "71/3"]
    assert [carried(sharing, name, release) for name in ("71", "71/1", "71/3")] == [[2], [1], [3]]


def test_what_a_host_did_not_take_along_has_its_own_from_then_on() -> None:
    sharing, release = Sharing(), hosted("order", "refund")
    ready = {"71": frozenset({1})}
    assert [sharing.host_of(number, release, ready) for number in (1, 2)] == ["71", "71/2"]
    assert sharing.host_of(2, release, {}) == "71/2"  # also when that host is gone
    assert [carried(sharing, name, release) for name in ("71", "71/2")] == [[1], [2]]


def test_what_a_host_left_behind_is_known_at_once() -> None:
    """The host may have nothing to do and leave before anybody looks which hosts are ready."""
    sharing, release = Sharing(), hosted("order", "refund")
    sharing.left_behind("71", release, frozenset({1}))
    assert [sharing.host_of(number, release, {}) for number in (1, 2)] == ["71", "71/2"]
    sharing.left_behind("71/2", release, frozenset({2}))
    assert [carried(sharing, name, release) for name in ("71", "71/2")] == [[1], [2]]


def test_what_a_host_carries_stays_with_it() -> None:
    sharing, release = Sharing(), hosted("order", "refund")
    assert sharing.host_of(2, release, {"71": frozenset({1, 2}), "72": frozenset()}) == "71"
