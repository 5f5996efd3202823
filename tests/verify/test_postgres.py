"""What `verify` finds on a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from perdure.errors import UsageError
from perdure.verify.place import verify
from tests.servers.fixtures import Database
from tests.verify.workload import fill

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def damage(postgres_db: Database) -> Callable[[str], set[str]]:
    """Give a function that changes data by raw SQL, past all constraints, and returns the rules found broken then."""
    await fill(postgres_db.url)

    def apply(script: str) -> set[str]:
        with psycopg.connect(postgres_db.url, autocommit=True) as connection:
            connection.execute("set session_replication_role = replica")
            connection.execute("set search_path = perdure")
            connection.execute(script.encode())
        return {finding.rule for finding in verify(postgres_db.url).findings}

    return apply


async def test_sound_data_is_sound_and_damage_is_found(damage: Callable[[str], set[str]]) -> None:
    assert damage("select 1") == set()
    assert damage("update event set payload = 'x' where payload is not null") == {"chain"}
    assert "sequence" in damage("delete from event where seq = 3")
    assert "stray" in damage("insert into inbox values ('nobody', 1, 'cancel', 0, null)")
    assert "status" in damage("update run set status = 'failed' where status = 'completed'")


def test_what_is_no_database_of_ours_is_said(postgres_db: Database) -> None:
    with pytest.raises(UsageError, match="not a database of perdure"):
        verify(postgres_db.url)
    with pytest.raises(UsageError, match="cannot be read"):
        verify("postgresql://nobody@127.0.0.1:1/none")
