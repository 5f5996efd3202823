"""The table of backends says what is tested on each, and has no empty cell."""

from __future__ import annotations

import pytest

from perdure.testing.conformance import StoreConformance
from scripts import parity
from scripts.parity import Case, Count


def test_the_page_counts_what_pytest_collects_and_no_cell_is_empty() -> None:
    rows = parity.rows(parity.collected())
    assert parity.PAGE.read_text("utf-8") == parity.page(rows), "run `make reference`"
    assert [(title, cells) for title, cells in rows.items() if not all(cells)] == []


def test_no_cell_is_excused_but_quorum_on_a_file() -> None:
    assert [(title.partition(":")[0], backend) for title, backend in parity.ABSENT] == [
        ("Durability `quorum`", "sqlite")
    ]


def test_every_part_of_the_contract_has_its_row() -> None:
    parts = StoreConformance.__mro__[1:]
    tested = {part.__name__ for part in parts if any(name.startswith("test_") for name in vars(part))}
    assert tested == set(parity.PARTS)


def case(name: str = "test_a", *given: str, file: str = "tests/a.py", fixture: str = "", nightly: bool = False) -> Case:
    return Case(file, "", name, list(given), [fixture], nightly)


@pytest.mark.parametrize(
    "one,backends",
    [
        (case("test_a", "postgres18"), {"postgres"}),
        (case("test_a", "sqlalchemy-mysql"), {"mysql"}),
        (case("test_a", "apsw"), {"sqlite"}),
        (case("test_a", "sqlite mariadb sqlite"), {"sqlite", "mysql"}),
        (case("test_a", "psycopg", fixture="tmp_db"), {"postgres"}),  # the application's own, beside the engine's
        (case(fixture="mariadb_db"), {"mysql"}),
        (case("test_a", "memory"), set()),
        (case(file="tests/store/postgres/test_quorum.py"), {"postgres"}),
        (case(), set()),
    ],
)
def test_a_test_counts_for_the_databases_it_is_given(one: Case, backends: set[str]) -> None:
    assert one.backends == backends


def test_a_test_counts_once_where_it_is_run_and_apart_where_only_the_long_campaigns_run_it() -> None:
    cases = [case("test_a"), case("test_a", nightly=True), case("test_b", nightly=True), case("test_c"), case("test_c")]
    assert parity.count(cases) == Count(2, 1)
    assert [str(Count(2, 1)), str(Count(2, 0)), str(Count(0, 1))] == ["2 + 1 nightly", "2", "1 nightly"]
