"""The backends a case is played on. A case without either of these is played on SQLite."""

from __future__ import annotations

import pytest

LONGER = pytest.mark.timeout(60)  # the first case on a server has to start it
SERVERS = [pytest.param(kind, marks=LONGER) for kind in ("postgres", "mariadb")]
everywhere = pytest.mark.parametrize("world", ["sqlite", *SERVERS], indirect=True)
on_servers = pytest.mark.parametrize("world", SERVERS, indirect=True)
on_postgres = pytest.mark.parametrize("world", SERVERS[:1], indirect=True)
on_mysql = pytest.mark.parametrize("world", SERVERS[1:], indirect=True)
