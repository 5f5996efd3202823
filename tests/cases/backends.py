"""The backends a case is played on. A case without either of these is played on SQLite.

A case that is not about servers is played on them in the long campaigns.
"""

from __future__ import annotations

import pytest

SERVERS = ["postgres", "mariadb"]
NIGHTLY = [pytest.param(kind, marks=pytest.mark.nightly) for kind in ("postgres", "mariadb")]
everywhere = pytest.mark.parametrize("world", ["sqlite", *NIGHTLY], indirect=True)
on_servers = pytest.mark.parametrize("world", SERVERS, indirect=True)
on_postgres = pytest.mark.parametrize("world", SERVERS[:1], indirect=True)
KINDS = pytest.mark.parametrize("kind", SERVERS)
ON_POSTGRES = pytest.mark.parametrize("kind", ["postgres", NIGHTLY[1]])
ON_MARIADB = pytest.mark.parametrize("kind", [NIGHTLY[0], "mariadb"])
"""Where a case on a server of its own belongs to the default suite; in the long campaigns it is played on both."""
