"""Keys to sign versions with."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from perdure.version.ed25519 import read_trusted_key


class KeyFiles(NamedTuple):
    """A pair of PEM files."""

    private: Path
    public: Path

    @property
    def id(self) -> str:
        return read_trusted_key(self.public).key_id


def make_keys(folder: Path, name: str = "release", password: bytes | None = None, *, odd: bool = False) -> KeyFiles:
    """Write a new pair of keys: of Ed25519, unless it is to be an odd one."""
    private = rsa.generate_private_key(65537, 2048) if odd else ed25519.Ed25519PrivateKey.generate()
    way = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    files = KeyFiles(folder / f"{name}.key", folder / f"{name}.pub")
    files.private.write_bytes(private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, way))
    files.public.write_bytes(
        private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return files
