"""Orders that arrive more than once, and are run again by hand: stock, coupon and number are each taken once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import perdure
from perdure import guard

TABLES = """
create table stock (units integer not null);
create table taken (order_id integer, step text, units integer not null, unique (order_id, step));
create table coupon (code text primary key, used_by integer);
create table orders (id integer primary key, state text not null, parcel integer unique);
insert into stock values (100);
insert into coupon values ('SPRING-1', null), ('SPRING-2', null);
insert into orders values (1, 'paid', null), (2, 'paid', null);
"""


@contextmanager
def shop() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect("shop.db", timeout=10)) as database, database:  # commits, or rolls back
        yield database


@perdure.step(retry=perdure.Retry(initial="10ms"))
def take_stock(order: int, units: int) -> None:
    with shop() as database:  # the business key: order and step
        if guard.insert(database, "taken", {"order_id": order, "step": "stock"}, {"units": units}):
            database.execute("update stock set units = units - ?", (units,))


@perdure.step(retry=perdure.Retry(initial="10ms"))
def use_coupon(order: int, code: str) -> None:
    with shop() as database:  # the state check: a free coupon, and no other order's
        guard.change(database, "coupon", {"code": code}, before={"used_by": None}, after={"used_by": order})


@perdure.step(retry=perdure.Retry(initial="10ms", give_up_on=(perdure.StateMismatch,)))
def ship(message: str, order: int) -> int:
    shipped = guard.Change("orders", {"id": order}, before={"state": "paid"}, after={"state": "shipped"})
    # The double guard: a message seen before gets its answer, and another one finds the order shipped.
    with shop() as database, guard.once(database, message, body=order, change=shipped) as once:
        if once.first:
            (once.answer,) = database.execute("select coalesce(max(parcel), 0) + 1 from orders").fetchone()
            database.execute("update orders set parcel = ? where id = ?", (once.answer, order))
    return int(once.answer)


@perdure.workflow
async def fulfil(message: str, order: int, units: int) -> str:
    await take_stock.aio(order, units)
    await use_coupon.aio(order, f"SPRING-{order}")
    try:
        return f"parcel {await ship.aio(message, order)}"
    except perdure.StateMismatch:
        return "shipped before"


async def main() -> None:
    with closing(sqlite3.connect("shop.db")) as database:
        database.executescript(TABLES)
        guard.create_table(database)
    async with perdure.Engine("sqlite:///shop-runs.db", [fulfil]) as engine:
        for order in (1, 2):
            runs = [engine.run(fulfil, f"message-{order}", order, 10) for _ in range(5)]  # of one message
            print(f"order {order}: {set(await asyncio.gather(*runs))}")
            print(f"order {order} by hand: {await engine.run(fulfil, f'by-hand-{order}', order, 10)}")
    with shop() as database:
        print("stock and what was taken:", *database.execute("select units, (select sum(units) from taken) from stock"))
        print("parcels:", database.execute("select count(parcel), max(parcel) from orders").fetchone())


if __name__ == "__main__":
    asyncio.run(main())
