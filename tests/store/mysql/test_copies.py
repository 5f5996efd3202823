"""Where PyMySQL passes as MySQLdb, for Django, an import puts copies of its parts into the package."""

from __future__ import annotations

from types import ModuleType

import pymysql
import pytest
from pymysql.err import IntegrityError, OperationalError

from perdure.store.mysql import fault
from perdure.store.server.dialect import Fault


def test_errors_are_known_whatever_the_package_shows_as_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pymysql, "err", ModuleType("MySQLdb.err"))
    assert fault.fault(OperationalError(1213, "deadlock")) is Fault.AGAIN
    assert fault.fault(IntegrityError(1062, "duplicate")) is Fault.WRITE
    assert fault.is_lost(OperationalError(2013, "lost"))
