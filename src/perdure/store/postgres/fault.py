"""What an error of PostgreSQL or its driver means: the one table of this backend. By SQLSTATE, never by message.

One state stands for what is wrong with a write and for what is wrong with the server: there, who says so tells.
"""

from __future__ import annotations

import psycopg

from perdure.errors import PerdureError, StoreCorrupt, StoreError, StoreUnavailable, UsageError
from perdure.store.server.dialect import Fault, LinkLost

_AGAIN = frozenset({"40001", "40P01"})
"""Serialization failure, deadlock."""
_BLOCKED = "55P03"
"""A lock that was not to be had in time."""
_ENVIRONMENT_CLASSES = frozenset(
    {"08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "55", "57", "58", "F0", "XX"}
)
"""Connection, session, rights, missing objects, resources, the operator, the system."""
_EXCEEDED = "54000"
_WITHOUT_IDS = frozenset({"GetNewTransactionId", "GetNewMultiXactId"})
"""The server's functions that exceed a limit of its own. All others with that state mean a value that is too large."""
_NO_RIGHTS = "42501"
_CORRUPT = frozenset({"XX001", "XX002"})
_MISSING = frozenset({"42P01", "3F000", "42883", "42703"})


def state_of(error: Exception) -> str:
    """Return an error's SQLSTATE, or an empty text."""
    return (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""


def fault(error: Exception) -> Fault:
    """Say what an error is about."""
    if isinstance(error, (LinkLost, StoreError, UsageError, MemoryError)):
        return Fault.ENVIRONMENT
    if not isinstance(error, psycopg.Error):
        return Fault.WRITE
    state = state_of(error)
    if state == _BLOCKED:
        return Fault.BLOCKED
    if state in _AGAIN:
        return Fault.AGAIN
    if (
        state[:2] in _ENVIRONMENT_CLASSES
        or is_without_ids(error)
        or (not state and isinstance(error, psycopg.OperationalError))
    ):
        return Fault.ENVIRONMENT
    return Fault.WRITE


def is_without_ids(error: psycopg.Error) -> bool:
    """Whether the server has no ids left for transactions, and refuses every write until old ones are frozen."""
    return state_of(error) == _EXCEEDED and error.diag.source_function in _WITHOUT_IDS


def translate(error: Exception) -> PerdureError | None:
    """Return what to raise instead of ``error``; None if it is not this backend's to translate."""
    if isinstance(error, LinkLost):
        return StoreUnavailable(str(error), unknown=error.committing)
    if not isinstance(error, psycopg.Error):
        return None
    state = state_of(error)
    text = said(error)
    if state in _CORRUPT:
        return StoreCorrupt(f"PostgreSQL found damage: {text}")
    if state == _NO_RIGHTS:
        return UsageError(f"the role lacks a right: {text}", hint="see the page on PostgreSQL for what to grant")
    if state in _MISSING:
        return UsageError(f"the schema is not what it should be: {text}", hint="run `perdure migrate`")
    if state == "25006":
        return StoreUnavailable(
            f"the server takes no writes: {text}", hint="connect to the primary: target_session_attrs=read-write"
        )
    if is_without_ids(error):
        return StoreUnavailable(
            f"the server takes no writes: {text}",
            hint="have that database vacuumed; `perdure doctor` says which one is the oldest",
        )
    if fault(error) is not Fault.WRITE:
        return StoreUnavailable(f"PostgreSQL cannot do it now: {text}")
    return StoreError(f"PostgreSQL refused: {text}")


def said(error: Exception) -> str:
    """Return the first line of what an error says."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
