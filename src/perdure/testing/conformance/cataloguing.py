"""V3, V4 and V6 of `perdure.store.catalog.base`: contents, status, routes, the record, and what is collected."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

import pytest

from perdure.errors import BlobsMissing, UnknownVersion, UsageError, VersionClosed, VersionPurged
from perdure.model.write import Outdated, Purge
from perdure.store.catalog.base import VersionUsage
from perdure.testing.author import Author
from perdure.testing.conformance.contract import Contract, accept, commit
from perdure.testing.conformance.publishing import (
    AT,
    actions,
    clear_route,
    deciding,
    newest,
    project,
    publish,
    set_route,
    set_status,
    sha,
    shop,
    store_files,
)
from perdure.testing.conformance.registering import RegisteringContract
from perdure.version.manifest import make_blob
from perdure.version.route import Arm, Route
from perdure.version.scan import encode, scan

if TYPE_CHECKING:
    from perdure.store.base import Store
    from perdure.store.catalog.base import Catalog, Collected


class BlobContract(Contract):
    """Contents of files."""

    def test_contents_come_back_as_they_were_and_only_what_lacks_is_missing(self, store: Store) -> None:
        catalog = store.catalog
        source = b"import os\nasync def order(): ...\n"
        blobs = [
            make_blob(source)._replace(canonical=scan(source).canonical, scan=encode(scan(source))),
            make_blob(bytes(range(256)) * 100),
            make_blob(b""),
        ]
        names = [blob.sha256 for blob in blobs]
        assert catalog.missing(names) == names
        catalog.add_blobs(blobs[:2])
        assert catalog.missing([*names, names[2]]) == names[2:]
        catalog.add_blobs(blobs)
        assert catalog.missing(names) == []
        assert {blob.sha256: blob for blob in catalog.blobs([*names, sha("nobody")])} == dict(
            zip(names, blobs, strict=True)
        )
        assert catalog.scans([*names, sha("nobody")]) == {names[0]: scan(source)}
        assert (catalog.missing([]), catalog.scans([]), catalog.blobs([])) == ([], {}, [])
        assert catalog.count() == 0

    def test_what_is_there_stays_and_a_scan_of_another_format_is_left_out(self, store: Store) -> None:
        foreign = make_blob(b"x = 1")._replace(canonical="?", scan=b'[99,"def9","","?"]')
        store.catalog.add_blobs([foreign])
        store.catalog.add_blobs([make_blob(b"x = 1")])
        assert store.catalog.blobs([foreign.sha256]) == [foreign]
        assert store.catalog.scans([foreign.sha256]) == {}

    def test_more_than_one_statement_takes(self, store: Store) -> None:
        blobs = [make_blob(b"%d" % number) for number in range(700)]
        store.catalog.add_blobs(iter(blobs))
        names = [blob.sha256 for blob in blobs]
        assert store.catalog.missing(names + [sha(f"n{number}") for number in range(6000)])[:2] == [
            sha("n0"),
            sha("n1"),
        ]
        assert sorted(store.catalog.blobs(names)) == sorted(blobs)

    def test_a_large_content_that_does_not_shrink(self, store: Store) -> None:
        data = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(100_000))
        store.catalog.add_blobs([make_blob(data), make_blob(b"small")])
        (blob,) = store.catalog.blobs([hashlib.sha256(data).hexdigest()])
        assert blob == make_blob(data)


class StandingContract(Contract):
    """Status, routes and the record."""

    def test_a_withdrawn_version_is_not_the_default_until_it_is_restored(self, store: Store) -> None:
        catalog = store.catalog
        publish(catalog, "v1", "1.0.0")
        (bad,) = publish(catalog, "v2", "1.1.0")
        assert set_status(catalog, bad.version_id, "withdrawn")
        shelf = catalog.shelf("order")
        assert (newest(shelf), shelf.count) == ("1.0.0", 3)
        changed = shelf.known.versions[bad.version_id].changed
        assert str(changed) == 'on 2026-02-25 by ben ("double charge")'
        (again,) = publish(catalog, "v2", "1.1.0")  # a process that crashes again and again
        (label,) = publish(catalog, "v2", "1.2.0")
        assert again.version_id == label.version_id == bad.version_id
        assert [notice.code for notice in label.decision.notices] == ["withdrawn_content"]
        assert newest(catalog.shelf("order")) == "1.0.0"
        assert set_status(catalog, bad.version_id, "active")
        assert newest(catalog.shelf("order")) == "1.2.0"
        assert actions(catalog) == ["published", "published", "withdrawn", "labelled", "restored"]
        assert catalog.log("order", limit=1)[0].detail == {"from": "withdrawn"}

    def test_a_status_that_is_set_again_changes_nothing(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        assert not set_status(catalog, one.version_id, "active")
        assert set_status(catalog, one.version_id, "closed")
        before = catalog.count(), catalog.log("order")
        assert not set_status(catalog, one.version_id, "closed", at=AT + 1)
        assert (catalog.count(), catalog.log("order")) == before
        with pytest.raises(UnknownVersion):
            set_status(catalog, 99, "closed")
        with pytest.raises(UnknownVersion):
            set_status(catalog, one.version_id, "closed", workflow="refund")
        with pytest.raises(UsageError, match="by hand"):
            set_status(catalog, one.version_id, "purged")

    def test_each_revision_of_a_route_follows_the_one_before(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        (two,) = publish(catalog, "v2", "2.0.0")
        first = set_route(catalog, {"1.0.0": 95, "2.0.0": 5})
        assert first == Route("default", 1, (Arm(two.version_id, "2.0.0", 5), Arm(one.version_id, "1.0.0", 95)), "salt")
        second = set_route(catalog, {"1.0.0": 50, "2.0.0": 50})
        other = set_route(catalog, {"1.0.0": 0.5}, channel="beta")
        shelf = catalog.shelf("order")
        assert shelf.routes == {"default": second, "beta": other}
        assert (second.revision, shelf.count) == (2, 5)
        assert catalog.shelf("refund").routes == {}
        newer, older, *_ = catalog.log("order")
        assert (newer.action, newer.version_id, newer.detail["channel"]) == ("route_set", None, "beta")
        assert older.detail == {
            "channel": "default", "revision": 2, "arms": [[two.version_id, "2.0.0", 50], [one.version_id, "1.0.0", 50]],
        }  # fmt: skip

    def test_a_route_that_is_set_again_or_cleared_twice_stays_as_it_is(self, store: Store) -> None:
        catalog = store.catalog
        publish(catalog, "v1", "1.0.0")
        assert clear_route(catalog).arms == ()
        assert catalog.count() == 1
        first = set_route(catalog, {"1.0.0": 1})
        assert set_route(catalog, {"1.0.0": 1}) == first
        assert catalog.count() == 2
        assert clear_route(catalog) == clear_route(catalog) == Route("default", 2, (), "salt")
        assert catalog.shelf("order").routes == {}
        assert set_route(catalog, {"1.0.0": 1}).revision == 3
        assert catalog.count() == 4
        assert actions(catalog) == ["published", "route_set", "route_set", "route_set"]

    def test_a_route_leads_to_versions_that_take_runs(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        set_route(catalog, {"1.0.0": 1}, channel="beta")
        with pytest.raises(UsageError, match=r"order@1.0.0 cannot be closed: the route of channel 'beta' leads to it"):
            set_status(catalog, one.version_id, "closed")
        clear_route(catalog, "beta")
        set_status(catalog, one.version_id, "closed")
        to_closed = Route("new", 1, (Arm(one.version_id, "1.0.0", 1),), "")
        to_nobody = Route("new", 1, (Arm(99, "9", 1),), "")
        before = catalog.count()
        for route, error in ((to_closed, VersionClosed), (to_nobody, UnknownVersion)):
            with pytest.raises(error):
                catalog.set_route("order", "new", lambda *_, r=route: r, at=AT, actor="", reason="")
        with pytest.raises(UsageError, match="revision 2"):
            catalog.set_route("order", "new", lambda *_: Route("new", 2, (), ""), at=AT, actor="", reason="")
        assert catalog.count() == before

    def test_what_happens_to_a_version_is_recorded_and_is_no_change(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        catalog.note(
            "order", one.version_id, "load_failed", {"error": "KeyError 'Ä'"}, at=AT, actor="w1", reason="host"
        )
        (noted, _) = catalog.log("order")
        assert (noted.action, noted.detail, noted.actor) == ("load_failed", {"error": "KeyError 'Ä'"}, "w1")
        assert catalog.count() == 1
        with pytest.raises(UnknownVersion):
            catalog.note("order", 9, "load_failed", {}, at=AT, actor="", reason="")
        with pytest.raises(UsageError, match="when it is done"):
            catalog.note("order", one.version_id, "purged", {}, at=AT, actor="", reason="")

    def test_another_process_sees_what_was_changed(self, store: Store, second: Store) -> None:
        assert second.catalog.count() == 0
        (one,) = publish(store.catalog, "v1", "1.0.0")
        set_route(store.catalog, {"1.0.0": 1})
        set_status(store.catalog, one.version_id, "withdrawn")
        assert second.catalog.count() == 3
        seen, own = second.catalog.shelf("order"), store.catalog.shelf("order")
        assert (seen.count, seen.routes, seen.known.versions, seen.known.labels) == (
            own.count, own.routes, own.known.versions, own.known.labels,
        )  # fmt: skip

    def test_texts_of_every_kind_come_back(self, store: Store) -> None:
        catalog = store.catalog
        strange = "Ä \U0001f600 'quoted' \\ \"x\" %s ? $1 --\n"
        store_files(catalog, strange)
        release, definitions = project({"shop/flow.py": strange}, "Bestellung Ä")
        catalog.register(release, definitions, deciding("1.0.0"), at=AT, actor=strange, reason=strange, commit=strange)
        (change,) = catalog.log("Bestellung Ä")
        assert (change.actor, change.reason, change.detail["commit"]) == (strange, strange, strange)
        found = catalog.definition(1)
        assert found is not None
        assert found.definition == definitions[0]


LATER = AT + 10
"""When what was done at `AT` is long over."""


def collect(catalog: Catalog, *, keep: int = 0, dry_run: bool = False) -> Collected:
    """Collect whatever may be."""
    return catalog.collect(
        keep=keep, closed_before=LATER, unused_before=2**62, at=LATER, actor="dan", reason="old", dry_run=dry_run
    )


class GarbageContract(Contract):
    """What versions are used for, and which are not."""

    def test_usage_counts_the_runs_of_each_version_and_state(self, store: Store) -> None:
        assert store.catalog.usage() == []
        now = store.now()
        for number, (run_id, version_id) in enumerate((("a", 0), ("b", 2), ("c", 2))):
            accept(store, Author(run_id, now + number).create(version_id=version_id))
        author = Author("d", now + 5)
        accept(store, author.create(version_id=2), author.claimed("w1"))
        assert store.catalog.usage() == [
            VersionUsage(0, "pending", 1, now), VersionUsage(2, "pending", 2, now + 1),
            VersionUsage(2, "running", 1, now + 5),
        ]  # fmt: skip

    def test_a_start_whose_version_was_chosen_before_a_change_is_refused(self, store: Store) -> None:
        (one,) = publish(store.catalog, "v1", "1.0.0")
        before = store.catalog.shelf("order").count
        accept(store, Author("a", store.now()).create(version_id=one.version_id, version_count=before))
        set_status(store.catalog, one.version_id, "withdrawn")
        create = Author("b", store.now()).create(version_id=one.version_id, version_count=before)
        assert commit(store, create) == [Outdated(before + 1)]

    def test_only_a_closed_version_that_no_run_is_bound_to_is_purged(self, store: Store) -> None:
        catalog = store.catalog
        (one,), (two,) = publish(catalog, "v1", "1.0.0"), publish(catalog, "v2", "2.0.0")
        publish(catalog, "v3", "3.0.0")
        author = Author("a", store.now())
        accept(store, author.create(version_id=two.version_id))
        assert collect(catalog).versions == ()
        for version in (one, two):
            set_status(catalog, version.version_id, "closed")
        before = catalog.count(), catalog.log("order")
        found = collect(catalog, dry_run=True)
        assert [(version.id, found.blobs) for version in found.versions] == [(one.version_id, 1)]
        assert (catalog.count(), catalog.log("order"), catalog.missing([sha("v1")])) == (*before, [])
        assert collect(catalog) == found
        assert catalog.missing([sha("v1"), sha("v2"), sha("v3"), sha("")]) == [sha("v1")]
        assert catalog.count() == before[0] + 1
        newest_row = catalog.log("order")[0]
        assert (newest_row.action, newest_row.version_id, newest_row.actor) == ("purged", one.version_id, "dan")
        kept = catalog.definition(one.version_id)
        assert kept is not None
        assert (kept.status, str(kept.changed)) == ("purged", 'on 2026-02-25 by dan ("old")')
        assert [label.text for label in kept.labels] == ["1.0.0"]
        assert collect(catalog).versions == ()

    def test_a_version_is_purged_once_its_last_run_is(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        author = Author("a", store.now())
        accept(store, author.create(version_id=one.version_id), author.claimed("w1"), author.completed())
        set_status(catalog, one.version_id, "closed")
        assert collect(catalog).versions == ()
        accept(store, Purge("a", store.now(), "ana", "retention"))
        assert [version.id for version in collect(catalog).versions] == [one.version_id]

    def test_a_run_keeps_what_came_in_its_release(self, store: Store) -> None:
        catalog = store.catalog
        order, refund = publish(catalog, "v1", "1.0.0", "order", "refund")
        accept(store, Author("a", store.now()).create(version_id=order.version_id))
        set_status(catalog, refund.version_id, "closed", workflow="refund")
        assert collect(catalog).versions == ()

    def test_the_newest_stay_and_so_do_those_closed_lately(self, store: Store) -> None:
        catalog = store.catalog
        ids = [publish(catalog, f"v{number}", f"{number}.0.0")[0].version_id for number in range(4)]
        for version_id in ids:
            set_status(catalog, version_id, "closed", at=LATER if version_id == ids[0] else AT)
        assert [version.id for version in collect(catalog, keep=2).versions] == [ids[1]]

    def test_contents_of_no_release_are_deleted_unless_they_are_new(self, store: Store) -> None:
        catalog = store.catalog
        publish(catalog, "v1", "1.0.0")
        before = store.now()
        store_files(catalog, "left behind")
        kept = catalog.collect(keep=0, closed_before=LATER, unused_before=before, at=AT, actor="dan", reason="")
        assert (kept.versions, kept.blobs) == ((), 0)
        gone = collect(catalog)
        assert (gone.versions, gone.blobs, gone.bytes) == ((), 1, len(make_blob(b"left behind").data))
        assert catalog.missing([sha("v1"), sha("left behind")]) == [sha("left behind")]
        assert catalog.count() == 1

    def test_what_was_purged_lends_no_files_to_a_new_version(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        set_status(catalog, one.version_id, "closed")
        collect(catalog)
        assert set(catalog.missing([sha("v1"), sha("")])) == {sha("v1"), sha("")}
        release, definitions = shop("v1", "refund")  # the same tree, whose release is still known
        with pytest.raises(BlobsMissing):
            catalog.register(release, definitions, deciding("1.0.0"), at=AT, actor="ana", reason="")
        (other,) = publish(catalog, "v1", "1.0.0", "refund")
        assert catalog.missing([sha("v1"), sha("")]) == []
        found = catalog.definition(other.version_id)
        assert found is not None
        assert found.release_id == 1

    def test_what_was_purged_is_restored_once_somebody_has_it_again(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        set_status(catalog, one.version_id, "closed")
        collect(catalog)
        for status in ("active", "withdrawn", "closed"):
            with pytest.raises(VersionPurged, match=r"order@1.0.0 was purged on 2026-02-25 by dan \("):
                set_status(catalog, one.version_id, status)
        _, definitions = shop("v1")
        release, _ = project({"shop/__init__.py": "", "shop/flow.py": "v1", "shop/other.py": "not reached"})
        register = partial(
            catalog.register, release, definitions, deciding("1.0.0"), at=AT, actor="ana", reason="back again"
        )
        with pytest.raises(BlobsMissing):
            register()
        store_files(catalog, "v1", "not reached")
        before = catalog.count(), catalog.log("order")
        for _ in range(2):
            (again,) = register()
            assert (again.version_id, again.decision.action) == (one.version_id, "seen")
        assert (catalog.count(), catalog.log("order")) == before
        found = catalog.definition(one.version_id)
        assert found is not None
        assert (found.release_id, found.status, found.definition) == (2, "purged", definitions[0])
        with pytest.raises(VersionPurged):
            set_status(catalog, one.version_id, "withdrawn")
        assert set_status(catalog, one.version_id, "active")
        assert newest(catalog.shelf("order")) == "1.0.0"
        assert collect(catalog).blobs == 0
        assert actions(catalog) == ["published", "closed", "purged", "restored"]


class CataloguingContract(BlobContract, RegisteringContract, StandingContract, GarbageContract):
    """All of it."""
