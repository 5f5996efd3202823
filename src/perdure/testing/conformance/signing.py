"""Signatures of versions, as every backend has to keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure.errors import UnknownVersion
from perdure.testing.conformance.contract import Contract
from perdure.testing.conformance.publishing import AT, actions, publish
from perdure.version.signature import Signature

if TYPE_CHECKING:
    from perdure.store.base import Store


class SigningContract(Contract):
    """Signatures belong to labels, and are only ever added."""

    def test_signatures_come_with_the_version_and_are_recorded_once(self, store: Store) -> None:
        catalog = store.catalog
        publish(catalog, "v1", "1.0.0")
        publish(catalog, "v1", "1.1.0")
        publish(catalog, "v2", "2.0.0")
        count = catalog.count()
        first = Signature(1, "k1", "aa" * 64, "ana", AT)
        again = Signature(2, "k1", "bb" * 64, "ana", AT + 1)
        rotated = Signature(1, "k2", "cc" * 64, "ben", AT + 2)
        other = Signature(3, "k1", "aa" * 64, "ana", AT + 3)
        for one in (first, again, rotated, other):
            assert catalog.add_signature("order", one, reason="released")
        assert not catalog.add_signature("order", first._replace(signed_at=AT + 9), reason="once more")
        stored, second = catalog.definition(1), catalog.definition(2)
        assert stored is not None
        assert second is not None
        assert set(stored.signatures) == {first, again, rotated}
        assert second.signatures == (other,)
        assert actions(catalog)[3:] == ["signed"] * 4
        change = catalog.log("order", limit=2)[1]
        assert (change.version_id, change.actor, change.reason) == (1, "ben", "released")
        assert change.detail == {"label": "1.0.0", "key_id": "k2"}
        assert catalog.count() == count  # nobody's choice of a version depends on it

    def test_a_signature_belongs_to_a_label_of_the_workflow(self, store: Store) -> None:
        publish(store.catalog, "v1", "1.0.0")
        with pytest.raises(UnknownVersion, match="order has no label with the number 2"):
            store.catalog.add_signature("order", Signature(2, "k1", "aa", "ana", AT), reason="")
        with pytest.raises(UnknownVersion, match="pay has no label with the number 1"):
            store.catalog.add_signature("pay", Signature(1, "k1", "aa", "ana", AT), reason="")
