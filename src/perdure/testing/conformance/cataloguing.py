"""V1 to V6 of `perdure.store.catalog.base`: what a database knows of versions."""

from __future__ import annotations

import hashlib
from functools import partial
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import pytest

from perdure.errors import (
    BlobsMissing,
    NotPublished,
    PerdureError,
    UnbumpedChange,
    UnknownVersion,
    UsageError,
    VersionClosed,
)
from perdure.store.catalog.base import MOST_NAMED, Identity
from perdure.testing.conformance.contract import Contract
from perdure.version import publication
from perdure.version.definition import Definition
from perdure.version.dependency import Dependencies, Lock
from perdure.version.manifest import ManifestFile, make_blob, tree_sha256
from perdure.version.route import Arm, Route, revise
from perdure.version.scan import encode, scan
from perdure.version.survey import Release

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perdure.store.base import Store
    from perdure.store.catalog.base import Catalog, Decide, Registered, Shelf
    from perdure.version.known import Known
    from perdure.version.publication import Differing

DAY = 86_400_000_000
AT = 1_772_000_000_000_000  # 2026-02-25


def sha(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def dependencies(lock: str | None = "a==1\n") -> Dependencies:
    """Return what a project stands on."""
    found = None if lock is None else Lock("uv.lock", lock, sha(lock))
    return Dependencies("3.12", 1, {"a": "1"}, {"shop/fast.so": sha("fast")}, found)


def project(files: Mapping[str, str], *workflows: str, scheme: str = "def1") -> tuple[Release, list[Definition]]:
    """Return the release of a project, and one definition for each workflow, which reaches all of it."""
    manifest = {path: ManifestFile(sha(text), len(text.encode())) for path, text in sorted(files.items())}
    release = Release(tree_sha256(manifest), manifest, ("shop",), dependencies())
    parts = {path: sha(text.strip()) for path, text in sorted(files.items())}
    identity = sha(f"{scheme} {sorted(parts.items())}")
    return release, [
        Definition(name, scheme, identity, f"shop.flow:{name}", "shop.boot:init", parts, '{"a":1}', "record",
                   dependencies())
        for name in workflows or ("order",)
    ]  # fmt: skip


def shop(text: str = "v1", *workflows: str) -> tuple[Release, list[Definition]]:
    """Return a project of two files, one of which has this text."""
    return project({"shop/__init__.py": "", "shop/flow.py": text}, *workflows)


def deciding(semver: str | None, **options: Any) -> Decide:
    """Return a decision as `perdure.version.publication` makes it."""

    def decide(known: Known, definition: Definition, differing: Differing) -> publication.Decision:
        return publication.decide(known, definition.sha256, semver, differing=differing, **options)

    return decide


def store_files(catalog: Catalog, *texts: str) -> None:
    """Add contents."""
    catalog.add_blobs(make_blob(text.encode()) for text in ("", *texts))


def publish(
    catalog: Catalog, text: str, semver: str | None, *workflows: str, at: int = AT, **options: Any
) -> list[Registered]:
    """Register a project whose code is a text, after its files are stored."""
    store_files(catalog, text)
    release, definitions = shop(text, *workflows)
    return catalog.register(
        release, definitions, deciding(semver, **options), at=at, actor="ana", reason="deploy", commit="c0ffee"
    )


def set_status(catalog: Catalog, version_id: int, status: Any, at: int = AT, workflow: str = "order") -> bool:
    """Change a status."""
    return catalog.set_status(workflow, version_id, status, at=at, actor="ben", reason="double charge")


def set_route(
    catalog: Catalog, weights: Mapping[str, float], channel: str = "default", workflow: str = "order"
) -> Route:
    """Set a route."""

    def next_one(known: Known, before: Route | None) -> Route:
        return revise(known, weights, before=before, channel=channel, salt="salt")

    return catalog.set_route(workflow, channel, next_one, at=AT, actor="cid", reason="canary")


def clear_route(catalog: Catalog, channel: str = "default") -> Route:
    """Clear a route."""

    def cleared(_: Known, before: Route | None) -> Route:
        return (
            Route(channel, 1, (), "salt") if before is None else before._replace(revision=before.revision + 1, arms=())
        )

    return catalog.set_route("order", channel, cleared, at=AT, actor="cid", reason="over")


def newest(shelf: Shelf) -> str | None:
    """Return the default label."""
    label = shelf.known.newest()
    return None if label is None else label.text


def texts(catalog: Catalog, workflow: str = "order") -> list[str]:
    """Return the labels of a workflow in the order of publication."""
    labels = sorted(catalog.shelf(workflow).known.labels, key=lambda label: label.seq)
    return [label.text for label in labels]


def actions(catalog: Catalog, workflow: str = "order") -> list[str]:
    """Return what was done, oldest first."""
    return [change.action for change in reversed(catalog.log(workflow))]


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


class RegisteringContract(Contract):
    """Registration."""

    def test_nothing_is_known_of_a_workflow_nobody_registered(self, store: Store) -> None:
        shelf = store.catalog.shelf("order")
        assert (shelf.count, shelf.known.versions, shelf.known.labels, shelf.routes) == (0, {}, [], {})
        assert store.catalog.workflows() == []
        assert store.catalog.log("order") == []
        assert store.catalog.definition(1) is None
        assert store.catalog.release(1) is None

    def test_a_version_comes_back_with_all_of_its_content(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        release, (definition,) = shop("v1")
        assert (one.definition, one.label, one.decision.action) == (definition, "1.0.0", "version")
        found = catalog.definition(one.version_id)
        assert found is not None
        assert found.definition == definition
        assert [(label.text, label.semver) for label in found.labels] == [("1.0.0", "1.0.0")]
        assert (found.status, found.changed, found.created_at) == ("active", None, AT)
        kept = catalog.release(found.release_id)
        assert kept is not None
        assert (kept.release, kept.source_commit, kept.created_at) == (release, "c0ffee", AT)
        shelf = catalog.shelf("order")
        assert newest(shelf) == "1.0.0"
        assert {version.sha256 for version in shelf.known.versions.values()} == {definition.sha256}
        assert shelf.count == catalog.count() == 1

    def test_the_record_says_what_a_version_follows_and_what_differs(self, store: Store) -> None:
        catalog = store.catalog
        (first,) = publish(catalog, "v1", "1.0.0")
        (second,) = publish(catalog, "v2", "1.1.0", at=AT + 1)
        newer, older = catalog.log("order")
        assert (newer.action, newer.version_id, newer.at, newer.actor, newer.reason) == (
            "published", second.version_id, AT + 1, "ana", "deploy",
        )  # fmt: skip
        assert newer.detail == {
            "label": "1.1.0", "semver": "1.1.0", "commit": "c0ffee", "release": 2, "previous": first.version_id,
            "changed": ["shop/flow.py"], "changed_count": 1,
        }  # fmt: skip
        assert (older.detail["previous"], older.detail["changed"]) == (None, [])
        assert [one.n for one in catalog.log("order", since=AT + 1)] == [newer.n]
        assert [one.n for one in catalog.log("order", limit=1)] == [newer.n]
        assert catalog.log("other") == []

    def test_the_record_names_so_many_changed_files_and_no_more(self, store: Store) -> None:
        catalog = store.catalog
        publish(catalog, "v1", "1.0.0")
        files = {f"shop/m{number}.py": f"x = {number}" for number in range(MOST_NAMED + 5)}
        release, definitions = project(files, "order")
        store_files(catalog, *files.values())
        catalog.register(release, definitions, deciding("2.0.0"), at=AT, actor="ana", reason="")
        detail = catalog.log("order", limit=1)[0].detail
        assert (len(detail["changed"]), detail["changed_count"]) == (MOST_NAMED, MOST_NAMED + 7)

    def test_the_same_again_changes_nothing_however_often(self, store: Store) -> None:
        catalog = store.catalog
        first = publish(catalog, "v1", "1.0.0", "order", "refund")
        before = [catalog.shelf("order"), catalog.log("order")]
        for number in range(50):
            again = publish(catalog, "v1", "1.0.0", "order", "refund", at=AT + number)
            assert [one.version_id for one in again] == [one.version_id for one in first]
            assert {one.decision.action for one in again} == {"seen"}
        assert catalog.count() == 1
        assert catalog.log("order") == before[1]
        assert catalog.workflows() == ["order", "refund"]

    def test_other_files_that_no_workflow_reaches_make_no_release(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        _, definitions = shop("v1")
        release, _ = project({"shop/other.py": "not stored"})
        (again,) = catalog.register(release, definitions, deciding("1.0.0"), at=AT, actor="ana", reason="")
        assert again.version_id == one.version_id
        assert catalog.release(2) is None

    def test_a_file_that_is_not_stored_refuses_all(self, store: Store) -> None:
        catalog = store.catalog
        catalog.add_blobs([make_blob(b"")])
        release, definitions = shop("v1", "order", "refund")
        with pytest.raises(BlobsMissing) as caught:
            catalog.register(release, definitions, deciding("1.0.0"), at=AT, actor="ana", reason="")
        assert caught.value.sha256s == (sha("v1"),)
        assert (catalog.count(), catalog.workflows(), catalog.log("order")) == (0, [], [])
        catalog.add_blobs([make_blob(b"v1")])
        registered = catalog.register(release, definitions, deciding("1.0.0"), at=AT, actor="ana", reason="")
        assert [one.label for one in registered] == ["1.0.0", "1.0.0"]
        assert catalog.count() == 1

    def test_one_refusal_refuses_all(self, store: Store) -> None:
        catalog = store.catalog
        publish(catalog, "v1", "1.0.0", "order")
        before = catalog.count()
        with pytest.raises(UnbumpedChange, match=r"\(shop/flow.py differs\)"):
            publish(catalog, "v2", "1.0.0", "refund", "order", on_unbumped="refuse")
        assert catalog.workflows() == ["order"]
        assert (catalog.count(), catalog.release(2)) == (before, None)
        with pytest.raises(NotPublished):
            publish(catalog, "v3", "1.0.0", registration="published-only")
        assert catalog.count() == before

    def test_the_same_content_under_another_number_is_one_more_label(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        (two,) = publish(catalog, "v1", "1.1.0")
        assert (one.version_id, two.decision.action) == (two.version_id, "label")
        assert texts(catalog) == ["1.0.0", "1.1.0"]
        assert actions(catalog) == ["published", "labelled"]
        assert catalog.log("order", limit=1)[0].detail == {"label": "1.1.0", "semver": "1.1.0", "commit": "c0ffee"}
        assert catalog.count() == 2

    def test_an_old_process_that_starts_again_does_not_move_the_default(self, store: Store) -> None:
        catalog = store.catalog
        publish(catalog, "v1", "1.0.0")
        publish(catalog, "v2", "1.1.0")
        (again,) = publish(catalog, "v1", "1.0.0")
        assert [notice.code for notice in again.decision.notices] == ["older_than_default"]
        assert newest(catalog.shelf("order")) == "1.1.0"

    def test_a_revert_with_a_new_number_or_without_one_moves_it_back(self, store: Store) -> None:
        catalog = store.catalog
        (old,) = publish(catalog, "v1", "1.3.0")
        publish(catalog, "v2", "1.4.0")
        (left,) = publish(catalog, "v1", "1.4.0")
        assert left.version_id == old.version_id
        assert left.label == newest(catalog.shelf("order")) != "1.4.0"
        publish(catalog, "v2", "1.4.0")  # the bad one, which crashes again and again
        assert newest(catalog.shelf("order")) == left.label
        publish(catalog, "v3", "1.5.0")
        publish(catalog, "v1", "1.6.0")
        assert newest(catalog.shelf("order")) == "1.6.0"

    def test_the_order_of_labels_is_that_of_semver_then_of_publication(self, store: Store) -> None:
        catalog = store.catalog
        for text, semver in (("a", "1.9.0"), ("b", "1.10.0"), ("c", "1.9.1"), ("d", "2.0.0-rc.1"), ("e", "1.10.0+x")):
            publish(catalog, text, semver)
        known = catalog.shelf("order").known
        assert [label.text for label in known.labels] == ["2.0.0-rc.1", "1.10.0+x", "1.10.0", "1.9.1", "1.9.0"]
        assert newest(catalog.shelf("order")) == "1.10.0+x"
        publish(catalog, "f", "1.10.0")
        assert newest(catalog.shelf("order")) == f"1.10.0+{shop('f')[1][0].sha256[:8]}"

    def test_without_a_number_a_label_is_made_of_the_content(self, store: Store) -> None:
        (one,) = publish(store.catalog, "v1", None)
        assert one.label == f"0.0.0+{one.definition.sha256[:8]}"

    def test_labels_of_hashes_that_begin_alike_are_longer(self, store: Store) -> None:
        catalog = store.catalog
        store_files(catalog, "v1")
        release, (definition,) = shop("v1")
        for tail in ("0", "1", "2"):
            alike = definition._replace(sha256="5f2a9c1e" + "a" * 55 + tail)
            catalog.register(release, [alike], deciding(None), at=AT, actor="ana", reason="")
        assert texts(catalog) == ["0.0.0+5f2a9c1e", "0.0.0+5f2a9c1ea", "0.0.0+5f2a9c1eaa"]

    def test_content_that_is_known_in_another_scheme_is_that_version(self, store: Store) -> None:
        catalog = store.catalog
        (one,) = publish(catalog, "v1", "1.0.0")
        release, (old,) = shop("v1")
        new = old._replace(scheme="def2", sha256=sha("def2 of v1"))
        known_as = {new.sha256: [Identity("def1", old.sha256)]}
        register = partial(catalog.register, decide=deciding("1.0.0"), at=AT, actor="ana", reason="")
        (same,) = register(release, [new], aliases=known_as)
        assert (same.version_id, same.decision.action) == (one.version_id, "seen")
        assert catalog.count() == 1
        (alone,) = register(release, [new])  # the newer engine, once the older hash is forgotten
        assert alone.version_id == one.version_id
        later = new._replace(sha256=sha("def2 of v2"))
        (first,) = register(release, [later], aliases={later.sha256: [Identity("def1", sha("def1 of v2"))]})
        (again,) = register(release, [old._replace(sha256=sha("def1 of v2"))])  # the older engine, beside it
        assert again.version_id == first.version_id != one.version_id
        found = catalog.definition(first.version_id)
        assert found is not None
        assert (found.definition.scheme, found.definition.sha256) == ("def2", later.sha256)

    def test_one_content_under_two_names_is_two_versions(self, store: Store) -> None:
        order, refund = publish(store.catalog, "v1", "1.0.0", "order", "refund")
        assert order.definition.sha256 == refund.definition.sha256
        assert order.version_id != refund.version_id
        assert texts(store.catalog, "refund") == ["1.0.0"]

    def test_of_many_who_register_two_contents_at_once_one_gets_the_number(
        self, store: Store, make: Callable[[], Store]
    ) -> None:
        stores = self._many(store, make)
        try:
            for number in range(3):
                workflow = f"auto{number}"
                came_to = self._race(stores, workflow)
                assert sorted(map(came_to.count, set(came_to))) == [8, 8]
                assert "1.3.0" in came_to
                shelf = store.catalog.shelf(workflow)
                assert (len(shelf.known.versions), len(shelf.known.labels)) == (2, 2)
                assert actions(store.catalog, workflow) == ["published", "published"]
        finally:
            self._close(stores, store)

    def test_of_many_who_register_two_contents_at_once_those_of_the_other_are_refused(
        self, store: Store, make: Callable[[], Store]
    ) -> None:
        stores = self._many(store, make)
        try:
            for number in range(3):
                came_to = self._race(stores, f"refuse{number}", on_unbumped="refuse")
                assert sorted(came_to) == ["1.3.0"] * 8 + ["UnbumpedChange"] * 8
                assert actions(store.catalog, f"refuse{number}") == ["published"]
        finally:
            self._close(stores, store)

    def _many(self, store: Store, make: Callable[[], Store]) -> list[Store]:
        if not store.capabilities.shared:
            return [store] * 16
        others = [make() for _ in range(7)]
        for other in others:
            other.open()
        return [store, *others] * 2

    def _close(self, stores: list[Store], store: Store) -> None:
        for other in set(stores) - {store}:
            other.close()

    def _race(self, stores: list[Store], workflow: str, **options: Any) -> list[str]:
        barrier = Barrier(len(stores))
        came_to: list[str] = [""] * len(stores)

        def register(number: int) -> None:
            barrier.wait()
            try:
                (one,) = publish(stores[number].catalog, f"v{number % 2} {workflow}", "1.3.0", workflow, **options)
            except PerdureError as error:
                came_to[number] = type(error).__name__
            else:
                came_to[number] = one.label

        threads = [Thread(target=register, args=(number,)) for number in range(len(stores))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return came_to


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


class CataloguingContract(BlobContract, RegisteringContract, StandingContract):
    """All of it."""
