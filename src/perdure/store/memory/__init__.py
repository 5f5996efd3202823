"""A store in memory: for tests, and the oracle the other backends are compared with.

Every write is applied by itself, in order, in the plainest way there is.

==============  ===========================================================================
`engine`        `perdure.store.base.Store`, put together from these; the writes
`lines`         queues, and which run is next
`lease`         workers
`listing`       reading
==============  ===========================================================================
"""

from __future__ import annotations

from perdure.store.memory.engine import MemoryStore, open_store

__all__ = ["MemoryStore", "open_store"]
