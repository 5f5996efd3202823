"""Stored bytes written by an attacker: no code runs, nothing is imported, the type is named."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import json
import pickle
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec.base import Codec, open_chain
from perdure.codec.exception import decode_exception, read_failure
from perdure.codec.json import JsonCodec
from perdure.codec.signature import decode_call, signature_of
from perdure.errors import CodecError, StepFailed

ran: list[str] = []
KEY = b"k" * 32


class Harmful:
    def __init__(self, *_: Any, **__: Any) -> None:
        ran.append("Harmful")

    def __new__(cls, *_: Any, **__: Any) -> Self:
        ran.append("Harmful.__new__")
        return object.__new__(cls)


@dataclasses.dataclass
class HarmfulData:
    command: str

    def __init__(self, command: str) -> None:
        ran.append(command)

    def __post_init__(self) -> None:
        ran.append("post_init")

    def __setattr__(self, name: str, value: object) -> None:
        ran.append("setattr")


class HarmfulError(Exception):
    def __new__(cls, *_: Any) -> Self:
        ran.append("new")
        return super().__new__(cls)

    def __init__(self, *_: Any) -> None:
        ran.append("init")

    @property
    def command(self) -> str:
        return ""

    @command.setter
    def command(self, value: str) -> None:
        ran.append(value)


GADGETS = [
    "os:system",
    "posix:system",
    "builtins:eval",
    "builtins:exec",
    "builtins:__import__",
    "builtins:object",
    "builtins:type",
    "builtins:open",
    "subprocess:Popen",
    "subprocess:run",
    "importlib:import_module",
    "pickle:loads",
    "threading:Thread",
    "pathlib:Path",
    "socket:socket",
    "logging.config:dictConfig",
    "antigravity:webbrowser",
    "this:s",
    "os:path.join",
    "os:environ",
    "collections:OrderedDict.__init__",
    f"{__name__}:Harmful",
    f"{__name__}:ran",
    "",
    ":",
    ":system",
    "os:",
    "os.system",
    "a:b:c",
    "\x00:\x00",
    "../../etc/passwd:x",
]
KINDS = ["dataclass", "struct", "namedtuple", "model", "enum", "object", "py/object", "exception", "pickle"]


@pytest.fixture(autouse=True)
def nothing_ran() -> Any:
    ran.clear()
    before = set(sys.modules)
    yield
    assert ran == []
    gained = {name.partition(".")[0] for name in set(sys.modules) - before}
    assert not gained & {"antigravity", "this", "webbrowser"}


@pytest.mark.parametrize("name", GADGETS)
@pytest.mark.parametrize(
    "codec", [JsonCodec(), open_chain(("pickle",), {"pickle": {"key": KEY}})], ids=["json", "pickle"]
)
def test_a_class_named_in_stored_data_does_not_run(name: str, codec: Codec) -> None:
    """SEC-02 (CVE-2026-28277, CVE-2025-64439, sartography/SpiffWorkflow#167): refused, and named."""
    for kind in KINDS:
        for fields in ({}, {"command": "id"}, {"args": ["id"], "__reduce__": "x"}):
            data = json.dumps([{"$": kind, "t": name, "v": fields}]).encode()
            for annotation in (Any, list[Any], list[Harmful]):
                with pytest.raises(CodecError) as caught:
                    codec.decode(data, annotation)
                if kind in {"dataclass", "struct", "namedtuple", "model", "enum"}:
                    assert caught.value.type_name == name
                    assert repr(name)[1:-1] in repr(str(caught.value))


def test_the_constructor_of_a_named_dataclass_does_not_run() -> None:
    """SEC-02: the class is of a kind that may be stored, so its state is set, by nothing of its own."""
    data = {"$": "dataclass", "t": f"{__name__}:HarmfulData", "v": {"command": "id"}}
    value = JsonCodec().decode(json.dumps(data).encode())
    assert vars(value) == {"command": "id"}


def test_the_constructor_of_a_named_exception_does_not_run() -> None:
    """SEC-02; Celery's CVE-2021-23727 rebuilt exceptions by calling names."""
    data = {"type": f"{__name__}:HarmfulError", "args": ["id"], "attributes": {"command": "id"}, "message": "m"}
    error = decode_exception(json.dumps(data).encode(), JsonCodec())
    assert type(error) is HarmfulError
    assert error.args == ("id",)


@pytest.mark.parametrize("name", [*GADGETS, f"{__name__}:HarmfulData", "builtins:str"])
def test_an_exception_of_a_class_that_is_none_is_a_step_failure(name: str) -> None:
    """SEC-02; Celery's CVE-2021-23727."""
    data = json.dumps({"type": name, "message": "m", "args": ["id"], "attributes": {"x": 1}}).encode()
    error = decode_exception(data, JsonCodec())
    assert type(error) is StepFailed
    assert error.message == "m"
    assert read_failure(data, JsonCodec()).message == "m"


@pytest.mark.parametrize(
    "cls", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError, asyncio.CancelledError, BaseException]
)
def test_a_stored_failure_never_stops_the_interpreter(cls: type[BaseException]) -> None:
    """Planted as a step's failure, it would be raised in the workflow."""
    data = json.dumps({"type": f"{cls.__module__}:{cls.__qualname__}", "message": "m", "args": [1]}).encode()
    assert type(decode_exception(data, JsonCodec())) is StepFailed


def test_no_module_is_imported_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-02: the canary file is absent."""
    canary = tmp_path / "canary"
    (tmp_path / "planted_module.py").write_text(f"open({str(canary)!r}, 'w')\nclass Order: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    codec = JsonCodec()
    for kind in KINDS:
        with pytest.raises(CodecError):
            codec.decode(json.dumps({"$": kind, "t": "planted_module:Order", "v": {}}).encode())
    decode_exception(b'{"type":"planted_module:Order","message":"m"}', codec)
    assert not canary.exists()
    assert "planted_module" not in sys.modules


def test_a_lazily_loaded_module_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in ``sys.modules``, but touching any attribute would run it."""
    path = tmp_path / "lazy_module.py"
    path.write_text("raise SystemExit('loaded')\n")
    spec = importlib.util.spec_from_file_location("lazy_module", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    spec.loader.exec_module(module)
    with pytest.raises(CodecError, match="lazy_module:Order"):
        JsonCodec().decode(b'{"$":"dataclass","t":"lazy_module:Order","v":{}}')


def test_a_module_level_getattr_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many packages import parts of themselves there."""
    module = type(sys)("asking_module")
    module.__getattr__ = ran.append  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "asking_module", module)
    with pytest.raises(CodecError):
        JsonCodec().decode(b'{"$":"dataclass","t":"asking_module:Order","v":{}}')


class _Bomb:
    def __reduce__(self) -> Any:
        return ran.append, ("pickle",)


@pytest.mark.parametrize("names", [("json",), ("json", "zstd"), ("pickle",)])
def test_a_planted_pickle_does_not_run(names: tuple[str, ...]) -> None:
    """SEC-02, S8: not with the default codec, and not with pickle without the key."""
    codec = open_chain(names, {"pickle": {"key": KEY}})
    body = pickle.dumps(_Bomb())
    for head in (b"", b"\x00p", b"\x00p" + b"\x00" * 32, b"\x00p" + body[:32], b"\x00z", b"\x00", b"\x80"):
        with pytest.raises(CodecError):
            codec.decode(head + body)
        with pytest.raises(CodecError):
            decode_call(signature_of(_Bomb), head + body, codec)
        with pytest.raises(CodecError):
            decode_exception(head + body, codec)


trees = st.recursive(
    st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.sampled_from([*GADGETS, "UTC", "2024-01-01"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.fixed_dictionaries(
            {
                "$": st.sampled_from(
                    [*KINDS, "set", "dict", "tuple", "datetime", "time", "date", "bytes", "int", "uuid"]
                )
            },
            optional={"v": inner, "t": inner, "x": inner, "z": inner, "fold": inner},
        ),
        st.dictionaries(st.sampled_from(["$", "v", "t", "type", "args", "cause", "message", "members"]), inner),
    ),
)


@given(trees)
def test_any_tree_is_read_or_refused(tree: Any) -> None:
    """Damaged data gives our error, never another one."""
    data = json.dumps(tree, allow_nan=False).encode() if "nan" not in repr(tree) and "inf" not in repr(tree) else b"1"
    codec = JsonCodec()
    for annotation in (Any, dict[str, int], HarmfulData):
        try:
            codec.decode(data, annotation)
        except CodecError as error:
            assert str(error)  # noqa: PT017 - either outcome is right
    try:
        decode_exception(data, codec)
    except CodecError as error:
        assert str(error)  # noqa: PT017 - either outcome is right


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Likewise, through every codec there is."""
    for codec in (open_chain(("json", "zstd")), open_chain(("pickle",), {"pickle": {"key": KEY}})):
        for prefix in (b"", b"\x00z", b"\x00p", b'{"$":'):
            try:
                codec.decode(prefix + data)
            except CodecError as error:
                assert str(error)  # noqa: PT017 - either outcome is right
