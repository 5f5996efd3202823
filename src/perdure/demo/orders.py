"""The orders of the demonstration, and the payment callbacks that report them: twice, and out of order."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from importlib.resources import files
from random import Random

from perdure.errors import InvalidValue

ALTERED_EVERY = 20
"""One payment in so many is also reported with another amount, as a forged or damaged callback would be."""


LEAST = 20
"""Fewer would be done before a worker can be killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One paid order, as the payment provider reports it."""

    payment_id: str
    order_id: str
    sku: str
    quantity: int
    cents: int
    email: str


def load(count: int) -> list[Order]:
    """Return the first ``count`` orders of the CSV that comes with the package.

    Raises:
        InvalidValue: there are not so many, or it is too few to kill a worker among them.
    """
    text = files(__package__).joinpath("orders.csv").read_text("utf-8")
    orders = [
        Order(
            payment_id=row["payment_id"], order_id=row["order_id"], sku=row["sku"], quantity=int(row["quantity"]),
            cents=int(row["cents"]), email=row["email"],
        )
        for row in csv.DictReader(text.splitlines())
    ]  # fmt: skip
    if not LEAST <= count <= len(orders):
        message = f"the demonstration has {LEAST} to {len(orders)} orders, not {count}"
        raise InvalidValue(message)
    return orders[:count]


def callbacks(orders: list[Order], seed: int) -> list[Order]:
    """Return what the payment provider sends: each callback twice, some altered, all in a shuffled order.

    An altered one comes somewhere after the first true one of its payment.
    """
    luck = Random(seed)
    sent = orders * 2
    luck.shuffle(sent)
    for order in orders[ALTERED_EVERY - 1 :: ALTERED_EVERY]:
        place = luck.randint(sent.index(order) + 1, len(sent))
        sent.insert(place, replace(order, cents=order.cents + 1))
    return sent
