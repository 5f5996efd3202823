"""Signing versions, and telling whether one is signed. Blocks, so it belongs on a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.api.reading import moment
from perdure.api.version_info import VersionCheck, VersionSignature
from perdure.api.version_reading import found, kept
from perdure.errors import SnapshotCorrupt, UsageError
from perdure.version.evidence import faults
from perdure.version.signature import Content, fault, not_signed, sign, state_of, statement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from perdure.api.version_acting import Why
    from perdure.store.base import Store
    from perdure.store.catalog.base import Registered, StoredDefinition
    from perdure.version.ed25519 import SigningKey, TrustedKey
    from perdure.version.known import KnownLabel
    from perdure.version.survey import Release


def sign_stored(store: Store, workflow: str, version: str, key: SigningKey, by: Why) -> VersionSignature:
    """Sign a version as it is stored, after a look whether it is whole.

    Raises:
        UnknownVersion: there is no such version.
        VersionPurged: its code is no longer stored.
        SnapshotCorrupt: what is stored is not what was registered.
    """
    one = found(store, workflow, version)
    stored, release = kept(store, one)
    content = Content(stored.definition, release.release)
    for problem in _faults(store, content, one.name):
        raise SnapshotCorrupt(problem)
    return _add(store, workflow, content, one.label, key, by)


def sign_published(
    store: Store, release: Release, registered: Iterable[Registered], key: SigningKey, trusted: Collection[TrustedKey],
    by: Why,
) -> None:  # fmt: skip
    """Sign what was registered from here, each under its label.

    What is signed was read here, or is what a trusted key has signed before: a version that came with another release
    first is stored with the files of that one, which nobody here has seen.

    Raises:
        UsageError: a version is neither.
    """
    for one in registered:
        stored, content = _stored(store, one.version_id)
        label = next(each for each in stored.labels if each.text == one.label)
        here = Content(one.definition, release)
        is_here = statement(content, label.text, label.semver) == statement(here, label.text, label.semver)
        if not is_here and fault(content, stored.labels, stored.signatures, (key.key, *trusted)) is not None:
            name = f"{one.definition.workflow}@{one.label}"
            message = f"{name} is stored with other files or dependencies than those here, and no trusted key signed it"
            raise UsageError(message, hint=f"look at it, and sign it as it is: perdure versions sign {name} --key FILE")
        _add(store, one.definition.workflow, content, label, key, by)


def check_own(store: Store, registered: Iterable[Registered], trusted: Collection[TrustedKey]) -> None:
    """Check that what a worker carries was signed, also where others could not tell.

    Raises:
        SignatureInvalid: it was not.
    """
    for one in registered:
        stored, content = _stored(store, one.version_id)
        # The code is what is here, dependencies included that are part of it. What else came with it is not run here.
        own = one.definition._replace(dependencies=stored.definition.dependencies)
        content = content._replace(definition=own)
        why = fault(content, stored.labels, stored.signatures, trusted)
        if why is not None:
            raise not_signed(f"{one.definition.workflow}@{one.label}", why)


def verified(store: Store, workflow: str, version: str, trusted: Collection[TrustedKey]) -> VersionCheck:
    """Return whether what is stored of a version is what was registered, and who signed it.

    Raises:
        UnknownVersion: there is no such version.
        VersionPurged: its code is no longer stored.
    """
    one = found(store, workflow, version)
    stored, release = kept(store, one)
    content = Content(stored.definition, release.release)
    problems = list(_faults(store, content, one.name))
    why = fault(content, stored.labels, stored.signatures, trusted) if trusted else None
    if why is not None:
        problems.append(f"{one.name} is not signed by a trusted key ({why}).")
    return VersionCheck(
        workflow=workflow, label=one.label.text, sha256=one.version.sha256, files=len(content.release.manifest),
        problems=tuple(problems), signatures=_signatures(content, stored, trusted),
    )  # fmt: skip


def _signatures(
    content: Content, stored: StoredDefinition, trusted: Collection[TrustedKey]
) -> tuple[VersionSignature, ...]:  # fmt: skip
    keys = {key.key_id: key for key in trusted}
    labels = {label.seq: label for label in stored.labels}
    return tuple(
        VersionSignature(
            label=labels[one.seq].text, key_id=one.key_id, state=state_of(one, labels[one.seq], content, keys),
            signed_by=one.signed_by, signed_at=moment(one.signed_at),
        )
        for one in stored.signatures
    )  # fmt: skip


def _stored(store: Store, version_id: int) -> tuple[StoredDefinition, Content]:
    stored = store.catalog.definition(version_id)
    release = None if stored is None else store.catalog.release(stored.release_id)
    assert stored is not None  # noqa: S101 - versions are never deleted
    assert release is not None  # noqa: S101 - nor releases
    return stored, Content(stored.definition, release.release)


def _faults(store: Store, content: Content, name: str) -> Iterator[str]:
    definition, release = content
    blobs = store.catalog.blobs({file.sha256 for file in release.manifest.values()})
    return faults(definition, release.tree_sha256, release.manifest, blobs, name)


def _add(
    store: Store, workflow: str, content: Content, label: KnownLabel, key: SigningKey, by: Why
) -> VersionSignature:  # fmt: skip
    signature = sign(key, content, label, by.actor, store.now())
    store.catalog.add_signature(workflow, signature, reason=by.reason)
    return VersionSignature(
        label=label.text, key_id=signature.key_id, state="valid", signed_by=by.actor,
        signed_at=moment(signature.signed_at),
    )  # fmt: skip
