"""The table of backends says what is tested, and has no empty cell."""

from __future__ import annotations

from scripts import parity


def test_the_page_is_current() -> None:
    assert parity.PAGE.read_text("utf-8") == parity.page(), "run `make reference`"


def test_no_cell_is_empty_and_none_is_excused_but_quorum_on_a_file() -> None:
    empty = [(title, cells) for title, cells in parity.rows().items() if not all(cells)]
    assert empty == []
    assert [(title.partition(":")[0], backend) for title, backend in parity.ABSENT] == [
        ("Durability `quorum`", "sqlite")
    ]


def test_every_backend_of_the_table_is_under_the_contract() -> None:
    assert set(parity.BACKENDS) == parity.backends_under_the_suite() - {"memory"}
    assert sum(parity.contract().values()) > 100


def test_every_file_of_a_feature_names_the_databases_it_is_run_on() -> None:
    names = {"sqlite": ("sqlite", "tmp_db", "shell"), "postgres": ("postgres", "KINDS", "kind"),
             "mysql": ("mariadb", "mysql", "KINDS", "kind")}  # fmt: skip
    for title, cells in parity.FEATURES.items():
        for backend, (file, _) in cells.items():
            folder = (parity.ROOT / file).parent
            text = "".join(one.read_text("utf-8") for one in [parity.ROOT / file, *folder.glob("conftest.py")])
            assert any(name in text for name in names[backend]), (title, backend)
