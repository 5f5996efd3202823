"""MariaDB 10.6 and later, MySQL 8.0.17 and later: any number of processes on any number of machines.

==============  ===========================================================================
`address`       what a URL says
`literal`       values as SQL text
`statement`     named statements, ready to be filled in
`link`          one connection: several statements in one packet, deadlines, lost answers
`batch`         the hot path of a commit
`levels`        which priorities wait, found level by level
`schema`        migrations, and what the server has to give
`fault`         what an error means
`facts`         what this server really is
`dialect`       `perdure.store.server.dialect.Dialect`, put together from these
==============  ===========================================================================

What it shares with other servers is in `perdure.store.server`.
"""

from __future__ import annotations

from perdure.store.mysql.dialect import open_store, schema_of

__all__ = ["open_store", "schema_of"]
