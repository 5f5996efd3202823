"""What a signature covers, and whose is taken."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import InvalidValue, UsageError
from perdure.version.definition import Definition
from perdure.version.dependency import Dependencies, Lock
from perdure.version.ed25519 import is_valid, read_signing_key, read_trusted_key
from perdure.version.known import KnownLabel
from perdure.version.manifest import ManifestFile
from perdure.version.signature import Content, Signature, fault, not_signed, sign, state_of, statement
from perdure.version.survey import Release
from tests.keys import KeyFiles, make_keys

DEPENDENCIES = Dependencies("3.12", 1, {"a": "1"}, {}, Lock("uv.lock", "a==1\n", "aa"))
DEFINITION = Definition(
    "order", "def1", "5f" * 32, "shop.flow:order", "shop.boot:init", {"shop/flow.py": "11"}, '{"a":1}', "pin",
    DEPENDENCIES,
)  # fmt: skip
MANIFEST = {"shop/flow.py": ManifestFile("aa" * 32, 10), "shop/late.py": ManifestFile("bb" * 32, 20)}
RELEASE = Release("name", MANIFEST, ("shop",), DEPENDENCIES)
CONTENT = Content(DEFINITION, RELEASE)
LABEL = KnownLabel(7, "1.3.0+5f2a9c1e", "1.3.0", 1)


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    return make_keys(tmp_path)


def of(definition: Definition = DEFINITION, **changes: Any) -> Content:
    return CONTENT._replace(definition=definition._replace(**changes))


def came_with(**changes: Any) -> Content:
    return CONTENT._replace(release=RELEASE._replace(**changes))


OTHERS = DEPENDENCIES._replace(lock=Lock("uv.lock", "a==2\n", "bb"))
ALTERED: dict[str, tuple[Content, KnownLabel]] = {
    "another workflow": (of(workflow="refund"), LABEL),
    "another label": (CONTENT, LABEL._replace(text="1.4.0")),
    "another number": (CONTENT, LABEL._replace(semver="1.4.0")),
    "another identity": (of(sha256="6f" * 32), LABEL),
    "another scheme": (of(scheme="def2"), LABEL),
    "another function": (of(entry="shop.flow:pay"), LABEL),
    "another set-up": (of(bootstrap="shop.boot:steal"), LABEL),
    "no set-up": (of(bootstrap=""), LABEL),
    "another configuration": (of(config='{"a":2}'), LABEL),
    "other dependencies": (of(dependencies=OTHERS), LABEL),
    "other dependencies of the release": (came_with(dependencies=OTHERS), LABEL),
    "another Python": (of(dependencies=DEPENDENCIES._replace(python="3.13")), LABEL),
    "dependencies that are not pinned": (of(deps="record"), LABEL),
    "an altered file": (came_with(manifest=MANIFEST | {"shop/late.py": ManifestFile("cc" * 32, 20)}), LABEL),
    "one more file": (came_with(manifest=MANIFEST | {"shop/x.py": ManifestFile("cc" * 32, 20)}), LABEL),
    "one file less": (came_with(manifest={"shop/flow.py": MANIFEST["shop/flow.py"]}), LABEL),
    "a renamed file": (
        came_with(manifest={"shop/flow.py": MANIFEST["shop/flow.py"], "shop/l.py": MANIFEST["shop/late.py"]}),
        LABEL,
    ),
    "other packages": (came_with(roots=("shop", "json")), LABEL),
}


@pytest.mark.parametrize("content,label", ALTERED.values(), ids=ALTERED)
def test_a_signature_is_of_all_that_is_executed(keys: KeyFiles, content: Content, label: KnownLabel) -> None:
    key = read_trusted_key(keys.public)
    signature = sign(read_signing_key(keys.private), CONTENT, LABEL, "ana", 1)
    assert signature == Signature(7, keys.id, signature.value, "ana", 1)
    assert state_of(signature, LABEL, CONTENT, {key.key_id: key}) == "valid"
    assert state_of(signature, label, content, {key.key_id: key}) == "invalid"
    assert fault(CONTENT, [LABEL], [signature], [key]) is None
    assert fault(content, [label], [signature], [key]) == f"key id {keys.id}, whose signature is of something else"


def test_what_is_signed_is_the_same_text_for_the_same_version() -> None:
    """A golden text: a later release has to make the same of what is stored, or all signatures are void."""
    assert statement(CONTENT, LABEL.text, LABEL.semver) == (
        b"perdure version signature 1\n"
        b'{"bootstrap":"shop.boot:init","config":"{\\"a\\":1}","deps":"pin","entry":"shop.flow:order",'
        b'"environment":["e3f30491c7c59677c62a7181592b3fc1d19de4a4dc990d8231b38d464427250f",'
        b'"e3f30491c7c59677c62a7181592b3fc1d19de4a4dc990d8231b38d464427250f"],'
        b'"files":"54c3e45dbe51367454a1bb75734ecc0b85862b2788561dd96fb91e2e86305173","label":"1.3.0+5f2a9c1e",'
        b'"roots":["shop"],"scheme":"def1","semver":"1.3.0",'
        b'"sha256":"5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f","workflow":"order"}'
    )
    renamed = came_with(tree_sha256="another name", manifest=dict(reversed(MANIFEST.items())))
    assert statement(renamed, LABEL.text, LABEL.semver) == statement(CONTENT, LABEL.text, LABEL.semver)


def test_only_trusted_keys_count_and_one_of_several_is_enough(tmp_path: Path, keys: KeyFiles) -> None:
    other = make_keys(tmp_path, "other")
    old, new = read_trusted_key(keys.public), read_trusted_key(other.public)
    by_old = sign(read_signing_key(keys.private), CONTENT, LABEL, "ana", 1)
    by_new = sign(read_signing_key(other.private), CONTENT, LABEL, "ana", 2)
    for trusted in ([old], [new], [new, old]):
        assert fault(CONTENT, [LABEL], [by_old, by_new], trusted) is None
    assert fault(CONTENT, [LABEL], [by_old], [new]) == f"key id {old.key_id}"
    assert fault(CONTENT, [LABEL], [by_old], []) == f"key id {old.key_id}"
    assert fault(CONTENT, [LABEL], [], [old]) == "it has no signature"
    # A signature that goes by the id of a trusted key, and one under a label that is not this version's.
    assert fault(CONTENT, [LABEL], [by_new._replace(key_id=old.key_id)], [old]) is not None
    assert fault(CONTENT, [LABEL], [by_old._replace(seq=8)], [old]) == "it has no signature"
    # Rubbish beside a good one does no harm.
    rubbish = [by_old._replace(value="zz"), by_old._replace(value=""), by_old._replace(value="aa" * 64)]
    assert fault(CONTENT, [LABEL], rubbish, [old]) is not None
    assert fault(CONTENT, [LABEL], [*rubbish, by_old], [old]) is None


def test_the_message_is_the_documented_one() -> None:
    assert str(not_signed("order@1.3.0", "key id k2")) == (
        "order@1.3.0 is not signed by a trusted key (key id k2). Nothing was run."
    )


def test_a_key_is_known_by_its_hash_and_may_be_given_as_text(keys: KeyFiles) -> None:
    key = read_trusted_key(str(keys.public))
    assert key.key_id == hashlib.sha256(key.public).hexdigest()[:16]
    assert read_trusted_key(keys.public.read_text()) == read_trusted_key(keys.public.read_bytes()) == key
    signing = read_signing_key(keys.private.read_text())
    assert signing.key == key
    assert is_valid(key, signing.sign(b"x"), b"x")
    assert not is_valid(key, signing.sign(b"x"), b"y")


@pytest.mark.parametrize(
    "make,read,text",
    [
        (lambda at: make_keys(at, odd=True).public, read_trusted_key, "is a key, but not one of Ed25519"),
        (lambda at: make_keys(at, odd=True).private, read_signing_key, "is a key, but not one of Ed25519"),
        (lambda at: make_keys(at, password=b"x").private, read_signing_key, "is encrypted"),
        (lambda at: make_keys(at).private, read_trusted_key, "holds a private key; to trust it, give its public key"),
        (lambda at: make_keys(at).public, read_signing_key, "holds a public key; signing needs the private one"),
        (lambda _: b"rubbish", read_trusted_key, "the key is no PEM file of an Ed25519 key"),
        (lambda _: b"rubbish", read_signing_key, "the key is no PEM file of an Ed25519 key"),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(
    tmp_path: Path, make: Callable[[Path], Any], read: Callable[[Any], Any], text: str
) -> None:
    with pytest.raises(InvalidValue, match=text) as caught:
        read(make(tmp_path))
    assert "BEGIN" not in str(caught.value)
    with pytest.raises(UsageError, match=r"no\.pem cannot be read: No such file"):
        read(tmp_path / "no.pem")


def test_without_the_library_it_is_said_what_to_install(keys: KeyFiles) -> None:
    program = (
        "import sys\nsys.modules['cryptography'] = None\nimport perdure\n"
        "try:\n    perdure.Engine('sqlite://', trusted_keys=[sys.argv[1]])\n"
        "except perdure.UsageError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, keys.public], capture_output=True, text=True, check=True)
    assert "needs the package cryptography" in done.stdout
    assert "pip install 'perdure[signing]'" in done.stdout
