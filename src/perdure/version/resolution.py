"""Which version a request for one means: a label, the beginning of a hash, or a range."""

from __future__ import annotations

import re
from typing import Final

from perdure.errors import UnknownVersion, VersionClosed, VersionPurged
from perdure.version.known import Known, KnownLabel, KnownVersion
from perdure.version.label import SHORT, is_range, parse_range

HASH: Final = re.compile(rf"[0-9a-f]{{{SHORT},64}}")
_MOST_LISTED: Final = 10


def resolve(known: Known, requested: str) -> KnownLabel:
    """Return the label that new runs are bound through when this version is asked for.

    Raises:
        UnknownVersion: nothing, or more than one version, is meant by it.
        VersionClosed: the version takes no new runs.
        VersionPurged: the version's code is gone.
        InvalidValue: it begins like a range and is none.
    """
    return _open(known, find(known, requested))


def find(known: Known, requested: str) -> KnownLabel:
    """Return the label that is meant, whatever has become of its version.

    A label or hash may name a withdrawn version or a pre-release; a range takes the greatest label that could be the
    default, or a pre-release that a bound names.

    Raises:
        UnknownVersion: nothing, or more than one version, is meant by it.
        InvalidValue: it begins like a range and is none.
    """
    if is_range(requested):
        wanted = parse_range(requested)
        for label in known.labels:
            if known.version_of(label).status == "active" and known.semver(label) in wanted:
                return label
        raise _unknown(known, requested)
    for label in known.labels:
        if label.text == requested:
            return label
    return _by_hash(known, requested)


def _by_hash(known: Known, requested: str) -> KnownLabel:
    found: list[KnownVersion] = []
    if HASH.fullmatch(requested):
        found = [version for version in known.versions.values() if version.sha256.startswith(requested)]
    if len(found) > 1:
        raise UnknownVersion(
            f"{known.workflow} has {len(found)} versions that begin with {requested}. Give more digits."
        )
    label = known.label_of(found[0]) if found else None
    if label is None:
        raise _unknown(known, requested)
    return label


def _open(known: Known, label: KnownLabel) -> KnownLabel:
    version = known.version_of(label)
    if version.status == "closed":
        raise VersionClosed(_ended(known, label, version, "it takes no new runs"))
    if version.status == "purged":
        raise VersionPurged(_ended(known, label, version, "its code is gone"))
    return label


def _ended(known: Known, label: KnownLabel, version: KnownVersion, so: str) -> str:
    when = f" {version.changed}" if version.changed is not None else ""
    return f"{known.workflow}@{label.text} was {version.status}{when}; {so}."


def no_version(known: Known) -> UnknownVersion:
    """Return the error for a workflow that has no version to start on by itself."""
    labels = ", ".join(label.text for label in known.labels[:_MOST_LISTED])
    why = f"Ask for one by name: {labels}." if labels else "None is published."
    return UnknownVersion(f"{known.workflow} has no version that new runs start on by themselves. {why}")


def _unknown(known: Known, requested: str) -> UnknownVersion:
    newest = known.newest()
    texts = [label.text for label in known.labels if known.version_of(label).status != "purged"]
    more = ", ..." if len(texts) > _MOST_LISTED else ""
    parts = [f"{known.workflow} has no version {requested}."]
    if newest is not None:
        parts.append(f"Newest: {newest.text}.")
    parts.append(f"Known: {', '.join(texts[:_MOST_LISTED])}{more}." if texts else "None is published.")
    return UnknownVersion(" ".join(parts))
