"""What this server really is: settings given, rights, age; and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.filter import Fact
from perdure.store.migrate import migrations
from perdure.store.postgres.schema import given, problems

if TYPE_CHECKING:
    from perdure.store.postgres.link import PostgresLink


def facts(link: PostgresLink, schema: str, durability: str) -> tuple[Fact, ...]:
    """Return what there is to know."""
    found = given(link)
    number, name, _ = link.execute("migrations").rows[-1]
    current = int(number) >= len(migrations("postgres"))
    pooled = "through a pooler: no prepared statements, no hints" if link.pooled else "direct"
    return (
        Fact("postgresql", found.version),
        Fact("connection", pooled),
        Fact("durability", durability, "; ".join(problems(found, durability))),
        Fact("schema", f"{schema}: {number:04d}_{name}", "" if current else "not current: run `perdure migrate`"),
    )
