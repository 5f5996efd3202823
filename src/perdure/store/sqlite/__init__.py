"""SQLite: the default backend. One file, any number of processes of one machine.

==============  ===========================================================================
`place`         where the file is, and whether it can be there
`session`       the two connections, their locks, fork, lost connections
`schema`        migrations, and joining the file's common clock
`clock`         that clock
`batch`         the hot path of a commit
`book`          what the second look at a batch that did not fit reads
`claim`         finding due runs and taking them
`lease`         workers
`listing`       reading
`fault`         what a driver error means
`engine`        `perdure.store.base.Store`, put together from these
==============  ===========================================================================
"""

from __future__ import annotations

from perdure.store.sqlite.engine import SqliteStore, open_store
from perdure.store.sqlite.schema import schema_of

__all__ = ["SqliteStore", "open_store", "schema_of"]
