"""Order fulfilment: each step is recorded before the next begins, and an order is fulfilled once.

Run it twice: the second time it prints the recorded receipt and does nothing again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import perdure


@dataclass(frozen=True)
class Order:
    """What was ordered."""

    id: str
    sku: str
    cents: int
    email: str


@dataclass(frozen=True)
class Receipt:
    """What became of it."""

    order_id: str
    payment: str
    parcel: str


@perdure.step
async def reserve(sku: str) -> str:
    print(f"reserving {sku}")
    return f"hold-{sku}"


@perdure.step(retry=perdure.Retry(attempts=5), timeout="30s")
async def charge(order: Order) -> str:
    print(f"charging {order.cents} cents")
    return f"payment-{order.id}"


@perdure.step
async def pack(hold: str) -> str:
    print(f"packing {hold}")
    return f"box of {hold}"


@perdure.step
async def label(order: Order) -> str:
    print(f"printing the label for {order.email}")
    return f"label-{order.id}"


@perdure.step
def ship(box: str, address: str) -> str:  # a plain function: it runs on a thread
    print(f"shipping {box}")
    return f"parcel with {address}"


@perdure.workflow
async def fulfil(order: Order) -> Receipt:
    hold = await reserve(order.sku)
    payment = await charge(order)
    box, address = await asyncio.gather(pack(hold), label(order))  # side by side
    parcel = await ship.aio(box, address)
    return Receipt(order_id=order.id, payment=payment, parcel=parcel)


async def main() -> None:
    order = Order(id="order-42", sku="teapot", cents=4900, email="ada@example.com")
    async with perdure.Engine("sqlite:///orders.db", [fulfil]) as engine:
        print(await engine.run(fulfil, order, id=order.id))


if __name__ == "__main__":
    asyncio.run(main())
