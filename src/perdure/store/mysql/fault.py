"""What an error of the server or its driver means: the one table of this backend. By number, never by message."""

from __future__ import annotations

from pymysql.err import Error, InternalError  # not by way of the package: Django puts copies there

from perdure.errors import PerdureError, StoreCorrupt, StoreError, StoreUnavailable, UsageError
from perdure.store.server.dialect import Fault, LinkLost

NO_DATABASE = 1049
TABLE_FULL = 1114
_AGAIN = frozenset({1020, 1213, 1614, 3058})
"""Changed since it was read, deadlock, deadlock of GET_LOCK: the whole transaction is undone, and done again."""
_BLOCKED = frozenset({1205, 3572})
"""A lock that was not to be had in time, or at once. It undoes its statement alone: like every other error it is
followed by a ROLLBACK, of the transaction or to the savepoint before."""
_LOST = frozenset(
    {0, 1053, 1077, 1080, 1152, 1153, 1158, 1159, 1160, 1161, 1184, 1927, 2006, 2013, 2014, 2055, 3169, 4031}
)
"""The connection is gone, or about to go: it is not used again."""
LACKING = frozenset({1044, 1142, 1143})
"""The user may not do this to a database, a table or a column."""
_RIGHTS = LACKING | {1045, 1095, 1141, 1147, 1227, 1370, 1410, 1419, 1698}
_MISSING = frozenset({1046, 1049, 1051, 1054, 1072, 1091, 1146, 1305, 1360})
READ_ONLY = frozenset({1290, 1792, 1836, 3100})
"""Another server takes writes now: the connection is made anew, to find it."""
_FULL = frozenset({3, 28, 1021, 1114})
_CORRUPT = frozenset({126, 127, 1034, 1035, 1194, 1712, 1877})
_WRITE = frozenset(
    {1022, 1048, 1062, 1118, 1169, 1216, 1217, 1264, 1292, 1300, 1364, 1366, 1406, 1451, 1452, 1526, 1644, 1690}
    | {3140, 3819, 4025}
)
"""What was asked for is refused: a key, a check, a value. What is in no table here is not blamed on the write."""


class TooLarge(Exception):
    """A row does not fit into one packet."""


def number_of(error: Exception) -> int:
    """Return the server's or driver's number of an error; -1 if it has none."""
    return error.args[0] if isinstance(error, Error) and error.args and type(error.args[0]) is int else -1


def is_lost(error: Exception) -> bool:
    """Whether the connection is not to be used after this error."""
    if isinstance(error, Error):
        return number_of(error) in _LOST or (isinstance(error, InternalError) and number_of(error) < 0)
    return isinstance(error, OSError)


def is_unsure(error: Exception) -> bool:
    """Whether a COMMIT that was answered by this error may have happened all the same. A row without room has not."""
    return fault(error) is Fault.ENVIRONMENT and number_of(error) != TABLE_FULL


def fault(error: Exception) -> Fault:
    """Say what an error is about."""
    if isinstance(error, LinkLost | StoreError | UsageError | MemoryError | OSError):
        return Fault.ENVIRONMENT
    if not isinstance(error, Error):
        return Fault.WRITE
    number = number_of(error)
    if number in _BLOCKED:
        return Fault.BLOCKED
    if number in _AGAIN:
        return Fault.AGAIN
    return Fault.WRITE if number in _WRITE else Fault.ENVIRONMENT


def translate(error: Exception) -> PerdureError | None:
    """Return what to raise instead of ``error``; None if it is not this backend's to translate."""
    if isinstance(error, LinkLost):
        return StoreUnavailable(str(error), unknown=error.committing)
    if isinstance(error, TooLarge):
        return StoreError(str(error), hint="raise max_allowed_packet, or store a reference instead of the value")
    if not isinstance(error, Error):
        return None
    number, text = number_of(error), said(error)
    if number in _CORRUPT:
        return StoreCorrupt(f"the server found damage: {text}")
    if number in _RIGHTS:
        return UsageError(f"the user lacks a right: {text}", hint="see the page on MySQL and MariaDB for what to grant")
    if number in _MISSING:
        return UsageError(f"the database is not what it should be: {text}", hint="run `perdure migrate`")
    if number in READ_ONLY:
        return StoreUnavailable(f"the server takes no writes: {text}", hint="connect to the primary")
    if number in _FULL:
        return StoreUnavailable(f"the server's disk is full: {text}", hint="free some space; nothing recorded is lost")
    if fault(error) is not Fault.WRITE:
        return StoreUnavailable(f"the server cannot do it now: {text}")
    return StoreError(f"the server refused: {text}")


def said(error: Exception) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, Error) and len(error.args) > 1:
        return f"{error.args[1]} ({error.args[0]})".replace("\n", " ")
    return str(error).strip().replace("\n", " ") or type(error).__name__
