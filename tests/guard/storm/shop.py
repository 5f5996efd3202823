"""A shop that takes deliveries from standard input, and is killed at any time. Started with the place of its database.

A line is a delivery as JSON. Its number and its answer are written once everything it asked for is committed.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pymysql

from perdure import GuardBusy, StateMismatch, guard

TABLES = (
    "create table stock (units integer not null)",
    "create table taken (order_id integer, step varchar(9), units integer not null, unique (order_id, step))",
    "create table coupon (code varchar(20) primary key, used_by integer)",
    "create table counter (last integer not null)",
    "create table orders (id integer primary key, state varchar(9) not null, parcel integer)",
    "create table mail (message varchar(40) not null)",
    "insert into stock values (1000000)",
    "insert into counter values (0)",
)
FAULTS = (sqlite3.OperationalError, psycopg.OperationalError, pymysql.err.OperationalError, GuardBusy)
"""After which a transaction is done again: locks, deadlocks, a lost connection."""
PLACES = ("begun", "done", "committed")


class Shop:
    """Its database, and what it does for an order. Without guards it is careless, to show that they are needed."""

    def __init__(self, place: dict[str, Any], *, careless: bool = False) -> None:
        self.place = place
        self.careless = careless
        self.dying: tuple[str, str] | None = None
        self.raw: Any = self._connect()

    def _connect(self) -> Any:
        place = self.place
        if place["dialect"] == "sqlite":
            return sqlite3.connect(place["file"], timeout=30)
        server = {"host": place["host"], "port": place["port"], "user": place["user"]}
        if place["dialect"] == "postgresql":
            return psycopg.connect(dbname=place["database"], **server)
        return pymysql.connect(database=place["database"], ssl_disabled=True, **server)

    def execute(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.raw.cursor()
        cursor.execute(text if self.place["dialect"] == "sqlite" else text.replace("?", "%s"), values)
        rows = list(cursor.fetchall()) if cursor.description else []
        cursor.close()
        return rows

    @contextmanager
    def transaction(self, name: str) -> Iterator[None]:
        if self.place["dialect"] == "sqlite":
            self.raw.execute("begin immediate")
        self._die_at(name, "begun")
        yield
        self._die_at(name, "done")
        self.raw.commit()
        self._die_at(name, "committed")

    def _die_at(self, name: str, moment: str) -> None:
        if self.dying == (name, moment):
            os.kill(os.getpid(), signal.SIGKILL)

    def again(self, act: Callable[[], Any]) -> Any:
        """Do a transaction until it goes through."""
        while True:
            try:
                return act()
            except FAULTS:
                self.raw.rollback()
            except StateMismatch as error:
                self.raw.rollback()
                if not error.is_after:
                    raise
                return "shipped before"

    def take_stock(self, order: int, units: int) -> None:
        with self.transaction("take_stock"):
            key = {"order_id": order, "step": "stock"}
            if self.careless or guard.insert(self.raw, "taken", key, {"units": units}):
                self.execute("update stock set units = units - ?", units)

    def use_coupon(self, order: int) -> None:
        with self.transaction("use_coupon"):
            code, used = f"coupon-{order}", {"used_by": order}
            guard.change(self.raw, "coupon", {"code": code}, before={"used_by": None}, after=used)

    def ship(self, message: str, order: int) -> Any:
        shipped = guard.Change("orders", {"id": order}, before={"state": "paid"}, after={"state": "shipped"})
        with self.transaction("ship"), guard.once(self.raw, message, body=order, change=shipped) as once:
            if once.first:
                self.execute("update counter set last = last + 1")
                once.answer = self.execute("select last from counter")[0][0]
                self.execute("update orders set parcel = ? where id = ?", once.answer, order)
        return once.answer

    def write_mail(self, message: str) -> None:
        with self.transaction("write_mail"), guard.once(self.raw, f"{message}/mail") as once:
            if once.first:
                self.execute("insert into mail values (?)", message)

    def deliver(self, delivery: dict[str, Any]) -> Any:
        message, order, units = delivery["message"], delivery["order"], delivery["units"]
        die = delivery.get("die")
        self.dying = None if die is None else (die[0], die[1])
        self.again(lambda: self.take_stock(order, units))
        self.again(lambda: self.use_coupon(order))
        answer = self.again(lambda: self.ship(message, order))
        self.again(lambda: self.write_mail(message))
        return answer


def main() -> None:
    place = json.loads(sys.argv[1])
    shop = Shop(place, careless="careless" in sys.argv[2:])
    os.write(1, b"ready\n")
    for line in sys.stdin:
        delivery = json.loads(line)
        answer = shop.deliver(delivery)
        os.write(1, json.dumps([delivery["number"], answer]).encode() + b"\n")


if __name__ == "__main__":
    main()
