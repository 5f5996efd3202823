"""Pickle, for values that nothing else can hold. Never a default.

Unpickling runs whatever the bytes say. Each payload therefore carries a keyed digest, checked
before a single byte is unpickled: only who knows the key can make this process run something. The
key is a secret like a password to the machine. Do not use this codec where anyone else writes
payloads, and never over HTTP.
"""

from __future__ import annotations

import hmac
import pickle
from collections.abc import Sequence
from typing import Any, Final

from perdure.codec.base import ENVELOPE
from perdure.codec.json import JsonCodec
from perdure.errors import CodecError, UsageError

__all__ = ["PickleCodec", "open_codec"]

_MARK: Final = ord("p")
_HEAD: Final = bytes((ENVELOPE, _MARK))
_TAG_BYTES: Final = 32
_LEAST_KEY_BYTES: Final = 16


class PickleCodec:
    """See `Codec`. Reads JSON payloads as well, so that a store can change over.

    Args:
        key: Signs payloads; at least 16 bytes.
        old_keys: Still accepted on reading.

    Raises:
        UsageError: A key is too short.
    """

    name = "pickle"

    def __init__(self, key: bytes, old_keys: Sequence[bytes] = ()) -> None:
        self._keys = (key, *old_keys)
        if any(len(each) < _LEAST_KEY_BYTES for each in self._keys):
            raise UsageError(
                f"the key of the pickle codec must have {_LEAST_KEY_BYTES} bytes or more",
                hint="make one with secrets.token_bytes(32)",
            )
        self._json = JsonCodec()

    def encode(self, value: Any, annotation: Any = Any) -> bytes:  # noqa: ARG002 - pickle needs no annotation
        """Return the signed pickle of a value; see `Codec.encode`."""
        try:
            body = pickle.dumps(value, protocol=5)
        except Exception as error:
            name = type(value).__qualname__
            raise CodecError(f"cannot store {name}: {error}", type_name=name, reason=str(error)) from error
        return _HEAD + self._tag(self._keys[0], body) + body

    def decode(self, data: bytes, annotation: Any = Any) -> Any:
        """Return the value, if the signature is right; see `Codec.decode`."""
        if not data.startswith(_HEAD):
            return self._json.decode(data, annotation)
        tag, body = data[2 : 2 + _TAG_BYTES], data[2 + _TAG_BYTES :]
        if not any(hmac.compare_digest(tag, self._tag(key, body)) for key in self._keys):
            raise CodecError(
                "pickled payload is refused: its signature is wrong",
                hint="it was written with another key, or by someone without one",
            )
        try:
            return pickle.loads(body)  # noqa: S301 - signed by us, see above
        except Exception as error:
            raise CodecError(f"cannot read the pickled payload: {error}") from error

    def _tag(self, key: bytes, body: bytes) -> bytes:
        return hmac.digest(key, b"perdure pickle\0" + body, "sha256")


def open_codec(*, key: bytes | None = None, old_keys: Sequence[bytes] = ()) -> PickleCodec:
    """Return the codec; see `PickleCodec` for the options.

    Raises:
        UsageError: No key is given.
    """
    if key is None:
        raise UsageError("the pickle codec needs a key", hint="give it as an option, as bytes")
    return PickleCodec(key, old_keys)
