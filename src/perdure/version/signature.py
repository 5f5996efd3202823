"""What a signature vouches for, and whether a version has one of a key that is trusted.

A signature belongs to a label. It covers everything of the version that decides what a version host executes, so none
fits other code, another workflow or another label. Which of the signed versions a run is given, it does not say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple

from perdure.errors import SignatureInvalid
from perdure.version.config import canonical_json
from perdure.version.definition import Definition
from perdure.version.ed25519 import SigningKey, TrustedKey, is_valid
from perdure.version.known import KnownLabel
from perdure.version.manifest import tree_sha256
from perdure.version.survey import Release

_HEAD: Final = "perdure version signature 1\n"
"""So that the key signs nothing else that could be taken for this."""

SignatureState = Literal["valid", "unknown_key", "invalid"]


class Signature(NamedTuple):
    """A signature as it is stored. Nothing of it is trusted.

    Attributes:
        seq: the label it belongs to, by its place in the order of publications.
        key_id: id of the key it is said to be by.
        value: the signature, in hex.
        signed_by: who signed.
        signed_at: when, in microseconds.
    """

    seq: int
    key_id: str
    value: str
    signed_by: str
    signed_at: int


class Content(NamedTuple):
    """What a version host would run.

    Attributes:
        definition: the version.
        release: all files of the release it came with, and what they stand on.
    """

    definition: Definition
    release: Release


def statement(content: Content, label: str, semver: str) -> bytes:
    """Return the bytes that are signed: what is said of a version under one label. The same for the same version."""
    definition, release = content
    form = {
        "workflow": definition.workflow,
        "label": label,
        "semver": semver,
        "scheme": definition.scheme,
        "sha256": definition.sha256,
        "entry": definition.entry,
        "bootstrap": definition.bootstrap,
        "config": definition.config,
        "deps": definition.deps,
        "environment": [definition.dependencies.env_sha256, release.dependencies.env_sha256],
        "roots": sorted(release.roots),
        "files": tree_sha256(release.manifest),  # of all paths and hashes; what the tree is called does not count
    }
    return (_HEAD + canonical_json(form)).encode()


def sign(key: SigningKey, content: Content, label: KnownLabel, signed_by: str, at: int) -> Signature:
    """Return the signature of a version under a label."""
    value = key.sign(statement(content, label.text, label.semver)).hex()
    return Signature(label.seq, key.key.key_id, value, signed_by, at)


def state_of(
    signature: Signature, label: KnownLabel, content: Content, trusted: Mapping[str, TrustedKey]
) -> SignatureState:
    """Return what a signature is worth."""
    key = trusted.get(signature.key_id)
    if key is None:
        return "unknown_key"
    try:
        value = bytes.fromhex(signature.value)
    except ValueError:
        return "invalid"
    return "valid" if is_valid(key, value, statement(content, label.text, label.semver)) else "invalid"


def fault(
    content: Content, labels: Collection[KnownLabel], signatures: Iterable[Signature], trusted: Iterable[TrustedKey]
) -> str | None:
    """Return why a version is not taken for signed, such as ``key id 5f2a9c1e``; None if a trusted key signed it.

    One label that a trusted key signed is enough: the code is the same under all of them.
    """
    keys = {key.key_id: key for key in trusted}
    by_seq = {label.seq: label for label in labels}
    found: dict[SignatureState, list[str]] = {}
    for one in signatures:
        if one.seq in by_seq:
            found.setdefault(state_of(one, by_seq[one.seq], content, keys), []).append(one.key_id)
    if "valid" in found:
        return None
    if "invalid" in found:
        return f"key id {found['invalid'][0]}, whose signature is of something else"
    if "unknown_key" in found:
        return f"key id {', '.join(dict.fromkeys(found['unknown_key']))}"
    return "it has no signature"


def not_signed(version: str, why: str) -> SignatureInvalid:
    """Return the error for a version that is not taken for signed."""
    return SignatureInvalid(f"{version} is not signed by a trusted key ({why}). Nothing was run.")
