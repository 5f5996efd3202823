"""The backends a case is played on. A case without either of these is played on SQLite."""

from __future__ import annotations

import pytest

everywhere = pytest.mark.parametrize("world", ["sqlite", "postgres", "mariadb"], indirect=True)
on_servers = pytest.mark.parametrize("world", ["postgres", "mariadb"], indirect=True)
on_postgres = pytest.mark.parametrize("world", ["postgres"], indirect=True)
on_mysql = pytest.mark.parametrize("world", ["mariadb"], indirect=True)
