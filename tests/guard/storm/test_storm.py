"""Stock, coupon, shipping number and mail under duplicates, re-runs by hand and kill -9: the ledger balances."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import guard
from tests.guard.conftest import NewPlace
from tests.guard.storm.campaign import Campaign
from tests.guard.storm.shop import Shop

DIALECTS = ("sqlite", "postgresql", "mysql")


def campaign(place: dict[str, Any], **size: Any) -> Campaign:
    shop = Shop(place)
    guard.create_table(shop.raw)
    shop.raw.close()
    storm = Campaign(place, **{"seed": 1, "careless": False, **size})
    storm.prepare()
    storm.run()
    print(
        f"{place['dialect']}: {storm.deliveries} deliveries, {storm.duplicates} of them duplicates or by hand; "
        f"{storm.kills} kills, {storm.caught} with work in hand, {storm.aimed} aimed inside a transaction"
    )
    return storm


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_ledger_balances(new_place: NewPlace, dialect: str) -> None:
    storm = campaign(new_place(dialect)._asdict(), orders=25, repeats=6, by_hand=2, kills=5)
    assert storm.differences() == []
    assert storm.deliveries == storm.planned == 200
    assert storm.duplicates >= 150
    assert storm.kills >= 4
    assert storm.caught >= 2


def test_without_guards_it_does_not(new_place: NewPlace) -> None:
    storm = campaign(new_place("sqlite")._asdict(), orders=5, repeats=3, by_hand=1, kills=0, careless=True)
    assert "taken: True" in storm.differences()
    assert any(line.startswith("stock: ") for line in storm.differences())


@pytest.mark.nightly
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_ledger_balances_after_ten_thousand_duplicates(new_place: NewPlace, dialect: str) -> None:
    storm = campaign(new_place(dialect)._asdict(), orders=600, repeats=16, by_hand=3, kills=90)
    assert storm.differences() == []
    assert storm.deliveries == storm.planned
    assert storm.duplicates >= 10_000
    assert storm.caught >= 50
