"""PostgreSQL 15 and later: any number of processes on any number of machines.

==============  ===========================================================================
`address`       what a URL says
`link`          one connection: pipelines, deadlines, poolers, lost answers
`array`         columns of values as PostgreSQL's binary arrays
`text`          texts that PostgreSQL cannot hold, as ones that it can
`batch`         the hot path of a commit
`schema`        migrations, and what the server is asked to give
`fault`         what an error means
`facts`         what this server really is
`dialect`       `perdure.store.server.dialect.Dialect`, put together from these
==============  ===========================================================================

What it shares with other servers is in `perdure.store.server`.
"""

from __future__ import annotations

from perdure.store.postgres.dialect import open_store, schema_of

__all__ = ["open_store", "schema_of"]
