"""What every store must do, as tests: subclass, say how to make one, and run pytest.

    import pytest
    from perdure.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def make(self, tmp_path):
            return lambda: MyStore(tmp_path / "runs.db")

``make`` is called once per handle that a test needs, and every handle of one test must be on the same, at first empty
database. For readable failures call ``pytest.register_assert_rewrite("perdure.testing.conformance")`` in
``conftest.py``. Each test is named for a sentence of the contract in `perdure.store.base`.
"""

from __future__ import annotations

from perdure.testing.conformance.binding import BindingContract
from perdure.testing.conformance.cataloguing import CataloguingContract
from perdure.testing.conformance.claiming import ClaimingContract
from perdure.testing.conformance.creating import CreatingContract
from perdure.testing.conformance.demanding import DemandingContract
from perdure.testing.conformance.leasing import LeasingContract
from perdure.testing.conformance.messaging import MessagingContract
from perdure.testing.conformance.purging import PurgingContract
from perdure.testing.conformance.queueing import QueueingContract
from perdure.testing.conformance.reading import ReadingContract
from perdure.testing.conformance.sharing import SharingContract
from perdure.testing.conformance.signing import SigningContract
from perdure.testing.conformance.telling import TellingContract
from perdure.testing.conformance.turns import TurnsContract
from perdure.testing.conformance.upgrading import UpgradingContract
from perdure.testing.conformance.writing import WritingContract

__all__ = ["StoreConformance"]


class StoreConformance(
    WritingContract,
    CreatingContract,
    MessagingContract,
    TellingContract,
    PurgingContract,
    ClaimingContract,
    BindingContract,
    UpgradingContract,
    DemandingContract,
    QueueingContract,
    TurnsContract,
    LeasingContract,
    ReadingContract,
    SharingContract,
    CataloguingContract,
    SigningContract,
):
    """All parts of the contract."""
