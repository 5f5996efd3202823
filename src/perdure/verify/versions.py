"""Rules about versions: stored code is what it is called, and all that is named is there."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from perdure.verify.evidence import Case, Evidence, Finding, detail_of

BLOBS = "select sha256, codec, raw_size, data from definition_blob order by sha256"
RELEASES = "select id, tree_sha256, manifest from release_tree order by id"
VERSIONS = "select id, workflow, sha256, scheme, release_id, status, status_n from definition_version order by id"
LABELS = "select seq, workflow, label, version_id from version_label order by seq"
ALIASES = "select scheme, sha256, version_id from definition_alias order by sha256, scheme, version_id"
RECORD = "select n, workflow, version_id, action from version_change order by n"
ROUTES = "select workflow, channel, revision, arms from route order by workflow, channel, revision"
UPGRADES = "select run_id, new_epoch, from_version, to_version from run_upgrade order by run_id, new_epoch"
STATUS_OF = {"withdrawn": "withdrawn", "restored": "active", "closed": "closed", "purged": "purged"}
"""What a change of status leads to."""


class Version(NamedTuple):
    """A version, as far as it is checked."""

    id: int
    workflow: str
    sha256: str
    scheme: str
    release_id: int
    status: str
    status_n: int | None


class Change(NamedTuple):
    """A row of the record."""

    n: int
    workflow: str
    version_id: int | None
    action: str


class Versions:
    """What is checked over all versions.

    Args:
        evidence: the stored rows.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._versions = {row[0]: Version._make(row) for row in evidence.rows(VERSIONS)}
        self._upgrades: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for run_id, *record in evidence.rows(UPGRADES):
            self._upgrades[run_id].append((record[0], record[1], record[2]))
        self._changes = [Change._make(row) for row in evidence.rows(RECORD)]

    def case(self, case: Case) -> Iterator[Finding]:
        """Check what one run is bound to, and that its log and the record of upgrades say the same."""
        row = case.row
        yield from self._upgraded(case)
        if row.version_id == 0:
            return
        version = self._versions.get(row.version_id)
        if version is None:
            yield Finding("binding", row.id, None, f"it is bound to version {row.version_id}, which is not there")
        elif version.workflow != row.workflow:
            text = f"a run of {row.workflow} is bound to version {version.id}, which is one of {version.workflow}"
            yield Finding("binding", row.id, None, text)
        elif version.status == "purged":
            yield Finding("binding", row.id, None, f"it is bound to version {version.id}, which was purged")

    def _upgraded(self, case: Case) -> Iterator[Finding]:
        start = max((fact.seq for fact in case.facts if fact.type == "run_forked"), default=0)
        told: list[tuple[int, Any, Any]] = []
        for fact in case.facts:
            if fact.type == "run_upgraded" and fact.seq > start:  # what was copied is told of its own run
                detail = detail_of(fact)
                told.append((fact.epoch, detail.get("from_version"), detail.get("to_version")))
        recorded = self._upgrades.get(case.row.id, [])
        if told != recorded:
            text = f"the log tells of the upgrades {told}, the record of {recorded}"
            yield Finding("upgrade", case.row.id, None, text)
        for (_, _, before), (_, after, _) in pairwise(recorded):
            if before != after:
                text = f"it was upgraded to version {before}, and then from version {after}"
                yield Finding("upgrade", case.row.id, None, text)
        if recorded and recorded[-1][2] != case.row.version_id:
            text = f"it is bound to version {case.row.version_id}, and was upgraded to version {recorded[-1][2]}"
            yield Finding("binding", case.row.id, None, text)

    def findings(self) -> Iterator[Finding]:
        """Check the rest."""
        contents: set[str] = set()
        for sha256, codec, raw_size, data in self._evidence.rows(BLOBS):
            contents.add(sha256)
            fault = _fault(sha256, codec, raw_size, data)
            if fault is not None:
                yield _found("blob", f"content {sha256}: {fault}")
        yield from self._releases(contents)
        yield from self._record()
        yield from self._labels()
        yield from self._aliases()
        yield from self._routes()

    def _releases(self, contents: set[str]) -> Iterator[Finding]:
        """A release is the tree it is called, and what a version needs of it is there."""
        needed = {version.release_id for version in self._versions.values() if version.status != "purged"}
        there: set[int] = set()
        for number, tree, text in self._evidence.rows(RELEASES):
            there.add(number)
            try:
                files = {path: sha256 for path, (sha256, _) in json.loads(text).items()}
            except (ValueError, TypeError, AttributeError):
                yield _found("release", f"the manifest of release {number} cannot be read")
                continue
            if _tree(files) != tree:
                yield _found("release", f"release {number} is not the tree {tree}")
            for path, sha256 in files.items():
                if number in needed and sha256 not in contents:
                    yield _found("release", f"release {number}: the content of {path} is not there")
        for version in self._versions.values():
            if version.release_id not in there:
                yield _found("version", f"{_name(version)}: its release {version.release_id} is not there")

    def _record(self) -> Iterator[Finding]:
        """The record has no gaps, tells of versions that are there, and ends in the status that each has."""
        for place, change in enumerate(self._changes, start=1):
            if change.n != place:
                yield _found("record", f"change {place} is not there: the next is {change.n}")
                break
        status: dict[int, tuple[str, int | None]] = dict.fromkeys(self._versions, ("active", None))
        for change in self._changes:
            version = None if change.version_id is None else self._versions.get(change.version_id)
            if change.version_id is not None and (version is None or version.workflow != change.workflow):
                text = (
                    f"change {change.n} is about version {change.version_id} of {change.workflow}, which is not there"
                )
                yield _found("record", text)
            elif version is not None and change.action in STATUS_OF:
                status[version.id] = (STATUS_OF[change.action], change.n)
        for version in self._versions.values():
            if status[version.id] != (version.status, version.status_n):
                yield _found("version", f"{_name(version)} is {version.status}, which is not what the record says")

    def _labels(self) -> Iterator[Finding]:
        """Each version has a label, and each label is told of by the record."""
        labels: Counter[int] = Counter()
        for seq, workflow, label, version_id in self._evidence.rows(LABELS):
            labels[version_id] += 1
            version = self._versions.get(version_id)
            if version is None or version.workflow != workflow:
                yield _found("label", f"label {seq}, {workflow}@{label}: it has no version {version_id}")
        told = Counter(one.version_id for one in self._changes if one.action in ("published", "labelled"))
        published = Counter(one.version_id for one in self._changes if one.action == "published")
        for version in self._versions.values():
            if not labels[version.id]:
                yield _found("version", f"{_name(version)} has no label")
            if (published[version.id], told[version.id]) != (1, labels[version.id]):
                text = f"{_name(version)}: the record tells of {told[version.id]} publications, and it has"
                yield _found("record", f"{text} {labels[version.id]} labels")

    def _aliases(self) -> Iterator[Finding]:
        """Each version is found by what it is called, and what else leads to one leads to one that is there."""
        names: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
        for scheme, sha256, version_id in self._evidence.rows(ALIASES):
            names[version_id].add((scheme, sha256))
            if version_id not in self._versions:
                yield _found("alias", f"{scheme}:{sha256} leads to version {version_id}, which is not there")
        for version in self._versions.values():
            if (version.scheme, version.sha256) not in names[version.id]:
                yield _found("alias", f"{_name(version)} is not found by its own hash")

    def _routes(self) -> Iterator[Finding]:
        """Revisions have no gaps, and their arms are versions of the workflow."""
        last: Counter[tuple[str, str]] = Counter()
        told = Counter(one.workflow for one in self._changes if one.action == "route_set")
        revisions: Counter[str] = Counter()
        for workflow, channel, revision, arms in self._evidence.rows(ROUTES):
            revisions[workflow] += 1
            last[workflow, channel] += 1
            what = f"route of {workflow}, channel {channel}, revision {revision}"
            if revision != last[workflow, channel]:
                yield _found("route", f"{what}: {last[workflow, channel]} is not there")
                last[workflow, channel] = revision
            for version_id in _arms(arms):
                version = self._versions.get(version_id)
                if version is None or version.workflow != workflow:
                    yield _found("route", f"{what}: it leads to version {version_id}, which is not there")
        for workflow in sorted({*told, *revisions}):
            if told[workflow] != revisions[workflow]:
                yield _found("route", f"{workflow}: the record tells of {told[workflow]} revisions of routes, there are"
                                      f" {revisions[workflow]}")  # fmt: skip


def _found(rule: str, text: str) -> Finding:
    return Finding(rule, None, None, text)


def _name(version: Version) -> str:
    return f"version {version.id} of {version.workflow}"


def _fault(sha256: str, codec: str, raw_size: int, data: bytes) -> str | None:
    """Return what is wrong with a stored content, which is unpacked no further than it says it is long."""
    if codec != "zlib":
        return f"it is packed by {codec}, which is not known"
    if raw_size < 0:
        return f"it is said to be {raw_size} bytes long"
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(data, raw_size + 1)
    except zlib.error as error:
        return f"it cannot be unpacked: {error}"
    if len(raw) != raw_size or not unpacking.eof or unpacking.unused_data:
        return f"it is not {raw_size} bytes long"
    return None if hashlib.sha256(raw).hexdigest() == sha256 else "it is other bytes"


def _tree(files: dict[str, str]) -> str:
    """Return the name of a tree, from what the decision on identity says."""
    form = json.dumps(["tree1", sorted(map(list, files.items()))], separators=(",", ":"))
    return hashlib.sha256(form.encode()).hexdigest()


def _arms(text: str) -> list[Any]:
    """Return the versions that a route leads to; one that is nowhere for what cannot be read."""
    try:
        return [version_id for version_id, _, _ in json.loads(text)]
    except (ValueError, TypeError):
        return [-1]
