"""What an error of PostgreSQL is about, where its state alone does not say."""

from __future__ import annotations

from types import SimpleNamespace

import psycopg
import pytest

from perdure.errors import StoreError, StoreUnavailable
from perdure.store.postgres.fault import fault, translate
from perdure.store.server.dialect import Fault


class Exceeded(psycopg.errors.ProgramLimitExceeded):
    """As the server sends it from one of its functions."""

    def __init__(self, function: str) -> None:
        super().__init__(function)
        self._where = SimpleNamespace(source_function=function)

    @property
    def diag(self) -> psycopg.errors.Diagnostic:
        return self._where  # type: ignore[return-value]


@pytest.mark.parametrize(
    "function, about, told",
    [
        ("GetNewTransactionId", Fault.ENVIRONMENT, StoreUnavailable),
        ("GetNewMultiXactId", Fault.ENVIRONMENT, StoreUnavailable),
        ("_bt_check_third_page", Fault.WRITE, StoreError),
    ],
)
def test_a_server_without_ids_is_not_held_against_a_write(function: str, about: Fault, told: type[StoreError]) -> None:
    error = Exceeded(function)
    assert fault(error) is about
    assert type(translate(error)) is told
