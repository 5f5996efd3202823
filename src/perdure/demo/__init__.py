"""The demonstration: orders that are charged and shipped exactly once, while their workers are killed.

`play` conducts it. The services outside are a process of their own with a ledger of their own; the outcome is read from
that ledger alone.
"""

from __future__ import annotations
