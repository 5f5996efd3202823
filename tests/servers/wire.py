"""What the proxy has to know of a protocol: where messages end, what they execute, and when a reply is whole."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

COMMIT = re.compile(r"(?:^|;)\s*(?:commit|end)\b", re.IGNORECASE)
BEGIN = re.compile(r"(?:^|;)\s*(?:begin|start\s+transaction)\b", re.IGNORECASE)
ROLLBACK = re.compile(r"(?:^|;)\s*(?:rollback(?!\s+to\b)|abort)\b", re.IGNORECASE)
WRITE = re.compile(r"\b(?:insert|update|delete|merge|copy|truncate|create|alter|drop|call)\b", re.IGNORECASE)
MYSQL_DDL = re.compile(r"^\s*(?:truncate|create|alter|drop|rename)\b", re.IGNORECASE)
MYSQL_AUTOCOMMIT = re.compile(r"^\s*set\s+(?:session\s+|@@)?autocommit\s*=\s*(\w+)", re.IGNORECASE)


class Part(NamedTuple):
    """One message of a client."""

    data: bytes
    statement: str = ""
    """The SQL that this message executes, if it executes any."""
    commits: bool = False
    """The server commits a transaction when it has this message."""
    transaction: tuple[str, ...] = ()
    """What the transaction that it commits executed."""


class Wire(Protocol):
    """One connection, seen from between. Behind TLS nothing can be seen, and all is passed on."""

    def from_client(self, data: bytes) -> list[Part]:
        """Divide what the client sent into messages. What is incomplete is kept until the rest comes."""
        ...

    def from_server(self, data: bytes) -> bool:
        """Say whether what the server sent up to here answers all that it was asked."""
        ...


class Transaction:
    """Follows from statements alone where transactions begin and end."""

    def __init__(self, *, ddl_commits: bool) -> None:
        self.is_open = False
        self._ddl_commits = ddl_commits
        self._statements: list[str] = []

    def execute(self, statement: str) -> bool:
        """Take note of a statement. Say whether it commits by its own words."""
        self._statements.append(statement)
        if COMMIT.search(statement):
            self.is_open = False
            return True
        if ROLLBACK.search(statement):
            self.is_open = False
            self._statements.clear()
        elif BEGIN.search(statement):
            self.is_open = True
            self._statements[:] = [statement]
        return self._ddl_commits and MYSQL_DDL.search(statement) is not None

    @property
    def commits_by_itself(self) -> bool:
        """Say whether what was executed since the last commit wrote something outside a transaction."""
        return not self.is_open and any(WRITE.search(statement) for statement in self._statements)

    def end(self) -> tuple[str, ...]:
        """Forget what was executed, and give it."""
        statements = tuple(self._statements)
        self._statements.clear()
        return statements


class PostgresWire:
    """Protocol 3: simple queries, and the messages of prepared statements and pipelines."""

    def __init__(self) -> None:
        self._rest = b""
        self._reply = b""
        self._started = self._opaque = self._asked_for_tls = False
        self._asked = 0
        self._statements: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._transaction = Transaction(ddl_commits=False)

    def from_client(self, data: bytes) -> list[Part]:
        if self._opaque:
            return [Part(data)]
        self._rest += data
        parts: list[Part] = []
        at = 0
        while True:
            skip = 1 if self._started else 0
            head = self._rest[at + skip : at + skip + 4]
            size = skip + int.from_bytes(head, "big")
            if len(head) < 4 or len(self._rest) < at + size:
                break
            parts.append(self._read(self._rest[at : at + size]))
            at += size
        self._rest = self._rest[at:]
        return parts

    def _read(self, message: bytes) -> Part:
        if not self._started:
            self._started = int.from_bytes(message[4:6], "big") == 3
            self._asked_for_tls = not self._started
            self._asked += self._started
            return Part(message)
        kind, body = message[:1], message[5:]
        match kind:
            case b"Q":
                self._asked += 1
                return self._execute(message, _text(body.rstrip(b"\0")), alone=True)
            case b"P":
                name, sql = body.split(b"\0")[:2]
                self._statements[name] = _text(sql)
            case b"B":
                portal, name = body.split(b"\0")[:2]
                self._portals[portal] = self._statements.get(name, "")
            case b"E":
                return self._execute(message, self._portals.get(body.split(b"\0")[0], ""), alone=False)
            case b"S":
                self._asked += 1
                return self._settle(message, "")
            case b"c":  # the end of COPY
                return self._settle(message, "")
            case _:
                pass
        return Part(message)

    def _execute(self, message: bytes, statement: str, *, alone: bool) -> Part:
        if self._transaction.execute(statement):
            return Part(message, statement, commits=True, transaction=self._transaction.end())
        if alone and not re.match(r"\s*copy\b", statement, re.IGNORECASE):
            return self._settle(message, statement)
        return Part(message, statement)

    def _settle(self, message: bytes, statement: str) -> Part:
        """Commit what was executed outside a transaction."""
        if self._transaction.commits_by_itself:
            return Part(message, statement, commits=True, transaction=self._transaction.end())
        if not self._transaction.is_open:
            self._transaction.end()
        return Part(message, statement)

    def from_server(self, data: bytes) -> bool:
        if self._asked_for_tls:
            self._asked_for_tls, self._opaque = False, data[:1] in {b"S", b"G"}
            return True
        if self._opaque:
            return True
        self._reply += data
        at = 0
        while len(self._reply) >= at + 5:
            size = 1 + int.from_bytes(self._reply[at + 1 : at + 5], "big")
            if len(self._reply) < at + size:
                break
            if self._reply[at : at + 1] == b"Z":
                self._asked -= 1
                if self._asked == 0:
                    self._transaction.is_open = self._reply[at + 5 : at + 6] != b"I"
            at += size
        self._reply = self._reply[at:]
        return self._asked <= 0 and not self._reply


class MysqlWire:
    """The classic protocol, with statements as text."""

    def __init__(self) -> None:
        self._rest = b""
        self._reply = b""
        self._opaque = False
        self._greeted = False
        self._autocommit = True
        self._whole = True
        self._marks = 0
        """How many end marks the result has still to come with."""
        self._transaction = Transaction(ddl_commits=True)

    def from_client(self, data: bytes) -> list[Part]:
        if self._opaque:
            return [Part(data)]
        self._rest += data
        parts: list[Part] = []
        at = 0
        while len(self._rest) >= at + 4:
            size = 4 + int.from_bytes(self._rest[at : at + 3], "little")
            if len(self._rest) < at + size:
                break
            parts.append(self._read(self._rest[at : at + size]))
            at += size
            if self._opaque and at < len(self._rest):  # the client does not wait for leave before it begins with TLS
                parts.append(Part(self._rest[at:]))
                at = len(self._rest)
        self._rest = self._rest[at:]
        return parts

    def _read(self, message: bytes) -> Part:
        if not self._greeted:
            self._greeted, self._opaque = True, len(message) == 36  # a greeting without a user asks for TLS
            return Part(message)
        if message[3] != 0 or message[4:5] != b"\x03":
            return Part(message)
        self._whole, self._marks = False, 0
        statement = _text(message[5:])
        if found := MYSQL_AUTOCOMMIT.match(statement):
            self._autocommit = found[1].lower() in {"1", "on", "true"}
        commits = self._transaction.execute(statement) or (self._autocommit and self._transaction.commits_by_itself)
        if not commits:
            if self._autocommit and not self._transaction.is_open:
                self._transaction.end()
            return Part(message, statement)
        return Part(message, statement, commits=True, transaction=self._transaction.end())

    def from_server(self, data: bytes) -> bool:
        if self._opaque:
            return True
        self._reply += data
        at = 0
        while len(self._reply) >= at + 4:
            size = 4 + int.from_bytes(self._reply[at : at + 3], "little")
            if len(self._reply) < at + size:
                break
            self._follow(self._reply[at + 4 : at + size])
            at += size
        self._reply = self._reply[at:]
        return self._whole and not self._reply

    def _follow(self, packet: bytes) -> None:
        """Take note of one packet: a reply has one result for each statement, and all but the last say so.

        A result is OK, an error, or descriptions of columns and rows, each with an end mark.
        """
        more_results = 8
        if packet[:1] == b"\xff":
            self._marks, self._whole = 0, True
        elif self._marks == 0 and packet[:1] == b"\x00":
            at = 1
            for _ in range(2):  # affected rows and the last id, each in one byte or with its length before it
                at += {0xFC: 3, 0xFD: 4, 0xFE: 9}.get(packet[at], 1)
            self._whole = not packet[at] & more_results
        elif self._marks == 0:
            self._marks = 2
        elif packet[:1] == b"\xfe" and len(packet) < 9:
            self._marks -= 1
            self._whole = self._marks == 0 and not packet[3] & more_results


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
