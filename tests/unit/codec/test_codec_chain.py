"""The seam: envelopes, chains, compression, signed pickle, size limits, the folder."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import perdure.codec
from perdure.codec.base import Chain, Codec, Transform, open_chain
from perdure.codec.json import JsonCodec
from perdure.codec.pickle import PickleCodec
from perdure.codec.zstd import ZstdTransform
from perdure.errors import CodecError, UsageError
from tests.unit.codec.examples import Plain

KEY = b"k" * 32
OPTIONS: dict[str, dict[str, Any]] = {"pickle": {"key": KEY}}


class Backwards:
    """A transform as small as can be."""

    name = "backwards"
    mark = ord("b")

    def wrap(self, data: bytes) -> bytes | None:
        return data[::-1]

    def unwrap(self, body: bytes, *, max_bytes: int | None) -> bytes:
        return body[::-1]


def _codec_files() -> list[str]:
    folder = Path(perdure.codec.__file__).parent
    names = [module.name for module in pkgutil.iter_modules([str(folder)])]
    return [n for n in names if hasattr(importlib.import_module(f"perdure.codec.{n}"), "open_codec")]


def test_every_codec_in_the_folder_can_be_opened_and_used() -> None:
    """Adding a codec is adding a file."""
    names = _codec_files()
    assert {"json", "zstd", "pickle"} <= set(names)
    marks = []
    for name in names:
        module = importlib.import_module(f"perdure.codec.{name}")
        part = module.open_codec(**OPTIONS.get(name, {}))
        assert part.name == name
        chain = open_chain((name,) if isinstance(part, Codec) else ("json", name), OPTIONS)
        value = {"k": ["x" * 5000, (1, 2)]}
        assert chain.decode(chain.encode(value)) == value
        if isinstance(part, Transform):
            marks.append(part.mark)
    assert len(set(marks)) == len(marks)
    assert ord("p") not in marks


def test_json_needs_no_envelope() -> None:
    """The default payload is readable with any tool."""
    assert open_chain().encode({"cents": 1999}) == b'{"cents":1999}'


def test_transforms_nest_and_are_undone_in_reverse() -> None:
    """A payload says what was done to it."""
    chain = Chain(JsonCodec(), (ZstdTransform(), Backwards()))
    value = ["x" * 5000]
    data = chain.encode(value)
    assert data[:2] == b"\x00b"
    assert chain.decode(data) == value
    assert chain.name == "json+zstd+backwards"


def test_a_chain_reads_what_was_written_before_a_transform_was_added() -> None:
    """Switching compression on must not lose the past; off, it says what is missing."""
    packed, bare = open_chain(("json", "zstd")), open_chain()
    assert packed.decode(bare.encode([1])) == [1]
    with pytest.raises(CodecError, match=r"kind 'z'.*open the engine with the codecs"):
        bare.decode(packed.encode("x" * 5000))


def test_only_what_shrinks_is_compressed() -> None:
    """Small and random payloads stay as they are."""
    chain = open_chain(("json", "zstd"))
    assert chain.encode("x" * 1000)[0] != 0
    assert len(chain.encode("x" * 100_000)) < 200
    assert ZstdTransform().wrap(bytes(range(256)) * 3) is None


def test_a_decompression_bomb_is_stopped() -> None:
    """Security S13: never more is unpacked than the limit, whatever the frame claims."""
    body = ZstdTransform().wrap(b"0" * 200_000_000)
    assert body is not None
    assert len(body) < 50_000
    with pytest.raises(CodecError, match=r"holds more than 1,000,000"):
        ZstdTransform().unwrap(body, max_bytes=1_000_000)


def test_damaged_compression_is_refused() -> None:
    """Cut off, changed, or with a tail."""
    zstd = ZstdTransform()
    body = zstd.wrap(b"0123456789" * 1000)
    assert body is not None
    for damaged in (b"", body[:-5], body[:10], b"x" + body, body + b"x", body[:4] + b"\xff" * 9):
        with pytest.raises(CodecError):
            zstd.unwrap(damaged, max_bytes=None)


def test_endless_envelopes_are_refused() -> None:
    """Each could unpack into another."""
    chain = Chain(JsonCodec(), (Backwards(),))
    data = b"1"
    for _ in range(1000):
        data = b"\x00b" + data[::-1]
    with pytest.raises(CodecError, match="too many envelopes"):
        chain.decode(data)


def test_a_value_over_the_limit_is_refused_with_size_and_limit() -> None:
    """SER-13 (temporalio/sdk-python#1285, pydantic/pydantic-ai#7164)."""
    chain = open_chain(("json", "zstd"), max_bytes=1_000_000)
    at_limit = "x" * 999_998
    assert chain.decode(chain.encode(at_limit)) == at_limit
    with pytest.raises(CodecError, match=r"value takes 1,000,001 bytes, over the limit of 1,000,000") as caught:
        chain.encode(at_limit + "x")
    assert caught.value.hint


def test_large_values_come_back() -> None:
    """SER-13: 20 MB without a limit."""
    value = ["x" * 1_000_000] * 20
    for names in (("json",), ("json", "zstd")):
        chain = open_chain(names)
        assert chain.decode(chain.encode(value)) == value


def test_pickle_needs_a_key() -> None:
    """S8: opt-in, signed, never a default."""
    with pytest.raises(UsageError, match="needs a key"):
        open_chain(("pickle",))
    with pytest.raises(UsageError, match="16 bytes"):
        PickleCodec(b"short")


def test_pickle_holds_what_nothing_else_can() -> None:
    """The reason to opt in."""
    codec = PickleCodec(KEY)
    got = codec.decode(codec.encode(Plain()))
    assert (type(got), got.x) == (Plain, 1)
    with pytest.raises(CodecError, match=r"cannot store lock: "):
        codec.encode(threading.Lock())


def test_pickle_with_a_wrong_signature_is_refused() -> None:
    """S8: another key, a flipped bit, no tag."""
    codec = PickleCodec(KEY)
    data = codec.encode([1])
    others = [PickleCodec(b"o" * 32).encode([1]), data[:-1] + b"x", data[:20], b"\x00p", data[:2] + data[34:]]
    for other in others:
        with pytest.raises(CodecError, match="signature is wrong"):
            codec.decode(other)
    assert PickleCodec(b"n" * 32, old_keys=[KEY]).decode(data) == [1]


def test_pickle_reads_json() -> None:
    """A store may change over."""
    assert PickleCodec(KEY).decode(JsonCodec().encode((1, 2))) == (1, 2)


@pytest.mark.parametrize(
    "names, message",
    [
        ((), "the first must encode values"),
        (("zstd",), "the first must encode values"),
        (("json", "json"), "only the first may encode values"),
        (("json", "zstd", "zstd"), "one transform twice"),
        (("nope",), "there is no codec 'nope'"),
        (("base",), "there is no codec 'base'"),
        (("exception",), "there is no codec 'exception'"),
        (("../json",), "there is no codec"),
        (("tagged.lower",), "there is no codec"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(names: tuple[str, ...], message: str) -> None:
    """A mistake in settings gets one line."""
    with pytest.raises(UsageError, match=message):
        open_chain(names)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The codec is there, what it needs is not."""
    library = "compression" if sys.version_info >= (3, 14) else "backports"
    monkeypatch.delitem(sys.modules, "perdure.codec.zstd")
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"{library}.zstd", raising=False)
    with pytest.raises(UsageError, match=r"needs a library.*pip install 'perdure\[zstd\]'"):
        open_chain(("json", "zstd"))


def test_pydantic_is_not_imported_for_values_that_are_not_its() -> None:
    """It is an optional library, and slow to import."""
    import subprocess  # noqa: PLC0415

    code = (
        "import sys, dataclasses, perdure.codec.json as j, perdure.codec.exception, perdure.codec.signature\n"
        "@dataclasses.dataclass\nclass D:\n    a: int\n"
        "c = j.JsonCodec()\nassert c.decode(c.encode([D(1), {1}]), list[object]) == [D(1), {1}]\n"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=20).returncode == 0
