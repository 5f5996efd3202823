"""Applications in small: one class for each library whose connections a guard takes, all with the same methods.

An async one has an event loop of its own, so that each test is written once.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import apsw
import psycopg
import pymysql
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from perdure import guard

T = TypeVar("T")
_ALIASES = itertools.count(1)
UNENCRYPTED: dict[str, Any] = {"ssl_disabled": True}
"""What spares PyMySQL reading the system's certificates for each connection, to check none of them."""
PATIENCE_S = 8


class Place(NamedTuple):
    """Where an application's database is: a file, or a server's host, port, user and database."""

    dialect: str
    file: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    user: str = ""
    database: str = ""

    def sqlalchemy_url(self, driver: str) -> str:
        if self.dialect == "sqlite":
            return f"sqlite+{driver}:///{self.file}"
        tail = "?ssl_disabled=true" if driver == "pymysql" else ""
        return f"{self.dialect}+{driver}://{self.user}@{self.host}:{self.port}/{self.database}{tail}"

    def mysql(self) -> dict[str, Any]:
        return {"host": self.host, "port": self.port, "user": self.user, "database": self.database} | UNENCRYPTED

    def postgresql(self) -> str:
        return f"host={self.host} port={self.port} user={self.user} dbname={self.database}"


class Client(ABC):
    """One connection of an application."""

    is_async = False
    mark = "?"

    def __init__(self, place: Place) -> None:
        self.place = place
        self.raw: Any = None
        self.open()

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def run(self, text: str, values: tuple[Any, ...]) -> Any:
        """Give the cursor or result of a statement."""

    def execute(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        done = self.run(text.replace("?", self.mark), values)
        return [tuple(row) for row in done.fetchall()] if done.description else []

    def commit(self) -> None:
        self.raw.commit()

    def rollback(self) -> None:
        self.raw.rollback()

    def close(self) -> None:
        self.raw.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()

    @contextmanager
    def once(self, request_id: str | None = None, **options: Any) -> Iterator[guard.Once[Any]]:
        with guard.once(self.raw, request_id, **options) as once:
            yield once

    def insert(self, table: str, key: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> bool:
        return guard.insert(self.raw, table, key, values)

    def change(self, table: str, where: Mapping[str, Any], **states: Mapping[str, Any]) -> bool:
        return guard.change(self.raw, table, where, before=states["before"], after=states["after"])

    def create_table(self) -> None:
        guard.create_table(self.raw)

    def forget(self, older_than: str, limit: int = 100) -> int:
        return guard.forget(self.raw, older_than, limit)


class Sqlite3(Client):
    def open(self) -> None:
        self.raw = sqlite3.connect(self.place.file, timeout=PATIENCE_S)

    def begin(self) -> None:
        pass

    def run(self, text: str, values: tuple[Any, ...]) -> Any:
        return self.raw.execute(text, values)


class Apsw(Client):
    def open(self) -> None:
        self.raw = apsw.Connection(self.place.file)
        self.raw.set_busy_timeout(PATIENCE_S * 1000)

    def begin(self) -> None:
        self.raw.execute("begin immediate")

    def run(self, text: str, values: tuple[Any, ...]) -> Any:
        return self.raw.execute(text, values)

    def execute(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self.run(text, values))

    def commit(self) -> None:
        self.raw.execute("commit")

    def rollback(self) -> None:
        if self.raw.in_transaction:
            self.raw.execute("rollback")


class Psycopg(Client):
    mark = "%s"

    def open(self) -> None:
        self.raw = psycopg.connect(self.place.postgresql())

    def begin(self) -> None:
        pass

    def run(self, text: str, values: tuple[Any, ...]) -> Any:
        return self.raw.execute(text, values)


class PyMySql(Client):
    mark = "%s"

    def open(self) -> None:
        self.raw = pymysql.connect(**self.place.mysql(), autocommit=True)

    def begin(self) -> None:
        self.raw.begin()

    def run(self, text: str, values: tuple[Any, ...]) -> Any:
        cursor = self.raw.cursor()
        cursor.execute(text, values)
        return cursor


_DRIVERS = {"sqlite": "pysqlite", "postgresql": "psycopg", "mysql": "pymysql"}
_ASYNC_DRIVERS = {"sqlite": "aiosqlite", "postgresql": "psycopg", "mysql": "aiomysql"}


def named(text: str, values: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    first, *rest = text.split("?")
    written = first + "".join(f":p{number}{part}" for number, part in enumerate(rest))
    return sqlalchemy.text(written), {f"p{number}": value for number, value in enumerate(values)}


class SqlAlchemy(Client):
    def open(self) -> None:
        self._engine = sqlalchemy.create_engine(self.place.sqlalchemy_url(_DRIVERS[self.place.dialect]))
        self.raw = self.make()

    def make(self) -> Any:
        return self._engine.connect()

    def begin(self) -> None:
        self.raw.begin()

    def run(self, text: str, values: tuple[Any, ...]) -> Any:
        return self.raw.execute(*named(text, values))

    def execute(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        done = self.run(text, values)
        return [tuple(row) for row in done.all()] if done.returns_rows else []

    def close(self) -> None:
        super().close()
        self._engine.dispose()


class SqlAlchemySession(SqlAlchemy):
    def make(self) -> Any:
        return Session(self._engine)


class Django(Client):
    mark = "%s"

    def open(self) -> None:
        import django
        from django.conf import settings
        from django.db import connections
        from django.db.utils import ConnectionHandler

        if not settings.configured:
            settings.configure(DATABASES={"default": {}}, USE_TZ=True)
            django.setup()
        if self.place.dialect == "mysql":
            pymysql.install_as_MySQLdb()
        self._alias = f"application_{next(_ALIASES)}"
        self.raw = ConnectionHandler({"default": {}, self._alias: self._facts()})[self._alias]
        for name, module in list(sys.modules.items()):  # Django's import has put copies of its parts into the package
            if name.startswith("pymysql."):
                setattr(pymysql, name.removeprefix("pymysql."), module)
        cast("Any", connections)[self._alias] = self.raw

    def _facts(self) -> dict[str, Any]:
        place = self.place
        if place.dialect == "sqlite":
            return {"ENGINE": "django.db.backends.sqlite3", "NAME": place.file, "OPTIONS": {"timeout": PATIENCE_S}}
        facts = {"HOST": place.host, "PORT": place.port, "USER": place.user, "NAME": place.database}
        options = UNENCRYPTED if place.dialect == "mysql" else {}
        return {"ENGINE": f"django.db.backends.{place.dialect}", "OPTIONS": options, **facts}

    def begin(self) -> None:
        from django.db import transaction

        self._atomic = transaction.atomic(using=self._alias)
        self._atomic.__enter__()

    def run(self, text: str, values: tuple[Any, ...]) -> Any:
        cursor = self.raw.cursor()
        cursor.execute(text, values)
        return cursor

    def commit(self) -> None:
        self._atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        self._atomic.__exit__(RuntimeError, RuntimeError(), None)

    def close(self) -> None:
        from django.db import connections

        self.raw.close()
        del cast("Any", connections)[self._alias]


class AsyncClient(Client):
    """An async connection, on a loop that runs while it is waited for."""

    is_async = True

    def __init__(self, place: Place) -> None:
        self._loop = asyncio.new_event_loop()
        super().__init__(place)

    def wait(self, what: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(what)

    def commit(self) -> None:
        self.wait(self.raw.commit())

    def rollback(self) -> None:
        self.wait(self.raw.rollback())

    def close(self) -> None:
        self.wait(self.raw.close())
        self._loop.close()

    @contextmanager
    def once(self, request_id: str | None = None, **options: Any) -> Iterator[guard.Once[Any]]:
        once = guard.once(self.raw, request_id, **options)
        self.wait(once.__aenter__())
        try:
            yield once
        except BaseException as error:
            self.wait(once.__aexit__(type(error), error, error.__traceback__))
            raise
        self.wait(once.__aexit__(None, None, None))

    def insert(self, table: str, key: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> bool:
        return self.wait(guard.insert.aio(self.raw, table, key, values))

    def change(self, table: str, where: Mapping[str, Any], **states: Mapping[str, Any]) -> bool:
        return self.wait(guard.change.aio(self.raw, table, where, before=states["before"], after=states["after"]))

    def create_table(self) -> None:
        self.wait(guard.create_table.aio(self.raw))

    def forget(self, older_than: str, limit: int = 100) -> int:
        return self.wait(guard.forget.aio(self.raw, older_than, limit))


class AsyncPsycopg(AsyncClient):
    mark = "%s"

    def open(self) -> None:
        self.raw = self.wait(psycopg.AsyncConnection.connect(self.place.postgresql()))

    def begin(self) -> None:
        pass

    def run(self, text: str, values: tuple[Any, ...]) -> Any:
        return self.wait(self.raw.execute(text, values))

    def execute(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        done = self.run(text.replace("?", self.mark), values)
        return list(self.wait(done.fetchall())) if done.description else []


class AsyncSqlAlchemy(AsyncClient):
    def open(self) -> None:
        self._engine = create_async_engine(self.place.sqlalchemy_url(_ASYNC_DRIVERS[self.place.dialect]))
        self.raw = self.wait(self.make())

    async def make(self) -> Any:
        return await self._engine.connect()

    def begin(self) -> None:
        self.wait(self.raw.begin())

    def run(self, text: str, values: tuple[Any, ...]) -> Any:
        return self.wait(self.raw.execute(*named(text, values)))

    def execute(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        done = self.run(text, values)
        return [tuple(row) for row in done.all()] if done.returns_rows else []

    def close(self) -> None:
        self.wait(self.raw.close())
        self.wait(self._engine.dispose())
        self._loop.close()


class AsyncSqlAlchemySession(AsyncSqlAlchemy):
    async def make(self) -> Any:
        return AsyncSession(self._engine)

    def begin(self) -> None:
        async def begin() -> None:
            await self.raw.begin()

        self.wait(begin())


KINDS: dict[str, tuple[type[Client], str]] = {
    "sqlite3": (Sqlite3, "sqlite"),
    "apsw": (Apsw, "sqlite"),
    "psycopg": (Psycopg, "postgresql"),
    "psycopg-async": (AsyncPsycopg, "postgresql"),
    "pymysql": (PyMySql, "mysql"),
}
KINDS["sqlalchemy-session-sqlite"] = (SqlAlchemySession, "sqlite")
KINDS["sqlalchemy-async-session-postgresql"] = (AsyncSqlAlchemySession, "postgresql")
for _dialect in ("sqlite", "postgresql", "mysql"):
    KINDS[f"sqlalchemy-{_dialect}"] = (SqlAlchemy, _dialect)
    KINDS[f"sqlalchemy-async-{_dialect}"] = (AsyncSqlAlchemy, _dialect)
    KINDS[f"django-{_dialect}"] = (Django, _dialect)
