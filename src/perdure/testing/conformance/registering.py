"""V1, V2 and V5 of `perdure.store.catalog.base`: what registering a release leads to."""

from __future__ import annotations

from functools import partial
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import pytest

from perdure.errors import BlobsMissing, NotPublished, PerdureError, UnbumpedChange
from perdure.store.catalog.base import MOST_NAMED, Identity
from perdure.testing.conformance.contract import Contract
from perdure.testing.conformance.publishing import (
    AT,
    actions,
    deciding,
    newest,
    project,
    publish,
    sha,
    shop,
    store_files,
    texts,
)
from perdure.version.manifest import make_blob

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.store.base import Store


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
