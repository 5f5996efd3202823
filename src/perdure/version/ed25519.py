"""Ed25519 keys as PEM files, and what is done with them. The only file that knows the library behind it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from perdure.errors import InvalidValue, UsageError

_DIGITS: Final = 16
"""Of the hash of a public key that are its id."""
KeySource = str | bytes | PathLike[str]
"""A PEM file, or the text of one."""


class TrustedKey(NamedTuple):
    """A public key.

    Attributes:
        key_id: the beginning of the SHA-256 of the key's 32 bytes, in hex.
        public: these bytes.
    """

    key_id: str
    public: bytes


class SigningKey(NamedTuple):
    """A private key, of which only its use is given.

    Attributes:
        key: its public part.
        sign: returns the signature of a message.
    """

    key: TrustedKey
    sign: Callable[[bytes], bytes]


def read_signing_key(source: KeySource) -> SigningKey:
    """Return a private key.

    Raises:
        InvalidValue: it is none, or is encrypted.
        UsageError: the file cannot be read, or the library is not installed.
    """
    name, text = _text(source)
    if b"PUBLIC KEY" in text:
        raise InvalidValue(f"{name} holds a public key; signing needs the private one")
    private = _loaded("load_pem_private_key", name, text, "Ed25519PrivateKey", password=None)
    return SigningKey(_trusted(private.public_key()), private.sign)


def read_trusted_key(source: KeySource) -> TrustedKey:
    """Return a public key.

    Raises:
        InvalidValue: it is none, or is a private key, which nobody needs who only checks.
        UsageError: the file cannot be read, or the library is not installed.
    """
    name, text = _text(source)
    if b"PRIVATE KEY" in text:
        raise InvalidValue(f"{name} holds a private key; to trust it, give its public key, and keep this one away")
    return _trusted(_loaded("load_pem_public_key", name, text, "Ed25519PublicKey"))


def is_valid(key: TrustedKey, signature: bytes, message: bytes) -> bool:
    """Whether a signature is of this message and by this key."""
    library = _library()
    try:
        library.Ed25519PublicKey.from_public_bytes(key.public).verify(signature, message)
    except library.InvalidSignature:
        return False
    return True


def _text(source: KeySource) -> tuple[str, bytes]:
    """Return what to call a key, and its text."""
    if isinstance(source, bytes):
        return "the key", source
    if isinstance(source, str) and "-----BEGIN" in source:
        return "the key", source.encode()
    try:
        return str(source), Path(source).read_bytes()
    except OSError as error:
        message = f"the key {source} cannot be read: {error.strerror}"
        raise UsageError(message) from error


def _loaded(load: str, name: str, text: bytes, wanted: str, **options: Any) -> Any:
    library = _library()
    try:
        key = getattr(library, load)(text, **options)
    except TypeError as error:
        raise InvalidValue(
            f"{name} is encrypted; give the key as it is, from a place that only you can read"
        ) from error
    except (ValueError, library.UnsupportedAlgorithm) as error:
        raise InvalidValue(f"{name} is no PEM file of an Ed25519 key") from error
    if not isinstance(key, getattr(library, wanted)):
        raise InvalidValue(f"{name} is a key, but not one of Ed25519")
    return key


def _trusted(public: Any) -> TrustedKey:
    raw: bytes = public.public_bytes_raw()
    return TrustedKey(hashlib.sha256(raw).hexdigest()[:_DIGITS], raw)


class _Library(NamedTuple):
    """What is used of the package cryptography."""

    load_pem_private_key: Any
    load_pem_public_key: Any
    Ed25519PrivateKey: Any
    Ed25519PublicKey: Any
    InvalidSignature: type[Exception]
    UnsupportedAlgorithm: type[Exception]


def _library() -> _Library:
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            load_pem_private_key,
            load_pem_public_key,
        )
    except ModuleNotFoundError as error:
        message = "signing and checking versions needs the package cryptography"
        raise UsageError(message, hint="pip install 'perdure[signing]'") from error
    return _Library(
        load_pem_private_key, load_pem_public_key, ed25519.Ed25519PrivateKey, ed25519.Ed25519PublicKey,
        InvalidSignature, UnsupportedAlgorithm,
    )  # fmt: skip
