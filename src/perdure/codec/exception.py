"""Exceptions to bytes and back, without ever running their constructors.

Storing a failure must not fail: what an exception carries besides text is kept where it can be
stored, and otherwise replaced or left out, and named in ``dropped``. Texts are bounded, with a
visible mark where they were cut.

Reading gives the same class when it is a builtin or its module is imported already, and
`StepFailed` otherwise. A name in stored data is looked up, never imported (see `tagged`), and an
exception that would stop the interpreter is never what comes out.

The traceback as text is on every exception read, as ``__perdure_traceback__``; when such an
exception is raised on and stored again, the new traceback begins with the old one.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import MemberDescriptorType
from typing import Any, Final

from perdure.codec.base import Codec
from perdure.codec.tagged.classes import find_imported, name_of
from perdure.errors import CodecError, StepFailed

__all__ = [
    "TRACEBACK",
    "Failure",
    "decode_exception",
    "encode_exception",
    "read_failure",
    "traceback_of",
]

TRACEBACK: Final = "__perdure_traceback__"
"""Attribute that holds the traceback text of an exception that was read from the store."""

MOST_TEXT: Final = 64 * 1024
"""Characters of a message, a traceback, or one attribute."""

_MARK: Final = 48
"""Characters that are left for the mark where a text was cut."""

_MOST_NODES: Final = 64
_MOST_DEPTH: Final = 16
_MOST_ATTRIBUTES: Final = 64
_NOT_THEIRS: Final = ("__perdure_", "__notes__")
"""How attributes begin that are ours, or stored elsewhere."""
_HEAP_TYPE: Final = 1 << 9

# State that C keeps outside args and __dict__.
_HIDDEN: Final[tuple[tuple[type[BaseException], tuple[str, ...]], ...]] = (
    (OSError, ("filename", "filename2")),
    (ImportError, ("name", "path")),
    (NameError, ("name",)),
    (AttributeError, ("name",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is known of a stored exception without rebuilding it.

    Attributes:
        type_name: Module and name of its class, ``shop.CardDeclined``.
        message: Its text.
        traceback_text: Its traceback, chain included.
        details: Attributes that could be stored.
        dropped: Names of what could not.
    """

    type_name: str
    message: str
    traceback_text: str
    details: dict[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


def encode_exception(error: BaseException, codec: Codec) -> bytes:
    """Return the bytes for an exception, its cause or context chain and its group members.

    Args:
        error: The failure of a step or run.
        codec: Stores it; if it refuses the whole as too large, only the texts are kept.

    Raises:
        TypeError: It is no failure: cancellation, KeyboardInterrupt, SystemExit, MemoryError and
            other exceptions outside `Exception` end an attempt, but are never recorded as its
            failure.
    """
    if not isinstance(error, Exception) or isinstance(error, MemoryError):
        raise TypeError(f"{type(error).__name__} is never recorded as a failure")
    node = _Description(codec).describe(error)
    node["traceback"] = traceback_of(error)
    try:
        return codec.encode(node)
    except CodecError:
        return codec.encode(_shortened(node))


def decode_exception(data: bytes, codec: Codec, *, run_id: str | None = None, step: str | None = None) -> Exception:
    """Return the exception that was stored, of its own class or as `StepFailed`.

    Args:
        data: What `encode_exception` returned.
        codec: The codec it was stored with.
        run_id: Given to a `StepFailed`.
        step: Given to a `StepFailed`.

    Raises:
        CodecError: The bytes are damaged.
    """
    error = _rebuild(_node(codec.decode(data)), (run_id, step), 0)
    assert isinstance(error, Exception)  # noqa: S101 - _rebuild sees to it at depth 0
    return error


def read_failure(data: bytes, codec: Codec) -> Failure:
    """Return type, message and traceback of a stored exception; its class is not looked up.

    Raises:
        CodecError: The bytes are damaged.
    """
    node = _node(codec.decode(data))
    return Failure(
        type_name=_display(node),
        message=_text(node, "message"),
        traceback_text=_text(node, "traceback"),
        details=_mapping(node, "attributes"),
        dropped=tuple(str(name) for name in _sequence(node, "dropped")),
    )


def traceback_of(error: BaseException) -> str:
    """Return the traceback as text, oldest of the chain first, bounded.

    An exception read from the store shows where it was first raised, then where it went on.
    """
    parts: list[str] = []
    seen: set[int] = set()
    link = ""
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < _MOST_DEPTH:
        seen.add(id(current))
        parts.append(_own_traceback(current) + link)
        if current.__cause__ is not None:
            current, link = current.__cause__, "\nThe above was the direct cause of:\n\n"
        elif current.__suppress_context__:
            break
        else:
            current, link = current.__context__, "\nWhile handling the above:\n\n"
    return cut("".join(reversed(parts)))


def cut(text: str, most: int = MOST_TEXT) -> str:
    """Return a text of at most ``most`` characters: its head, a mark, its tail. What was cut is not cut again."""
    if len(text) <= most:
        return text
    half = (most - _MARK) // 2
    mark = f"\n... [{len(text) - 2 * half:,} characters cut] ...\n"
    return text[:half] + mark + text[-half:]


def _own_traceback(error: BaseException) -> str:
    earlier = getattr(error, TRACEBACK, None)
    try:
        now = "".join(traceback.format_exception(error, chain=False))
    except Exception:  # noqa: BLE001 - formatting calls user code
        now = "".join(traceback.format_tb(error.__traceback__)) + f"{type(error).__name__}\n"
    if not isinstance(earlier, str) or not earlier:
        return now
    return f"{earlier}\nRaised again at:\n\n{now}" if error.__traceback__ else earlier


class _Description:
    """One walk over an exception and what hangs on it."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._seen: set[int] = set()

    def describe(self, error: BaseException, depth: int = 0) -> dict[str, Any]:
        self._seen.add(id(error))
        dropped: list[str] = []
        node: dict[str, Any] = {"type": name_of(type(error)), "message": cut(_message(error))}
        args = error.args[:1] if isinstance(error, BaseExceptionGroup) else error.args
        node["args"] = [
            self._keep(item, f"args[{index}]", dropped, in_place=True)
            for index, item in enumerate(args[:_MOST_ATTRIBUTES])
        ]
        node["attributes"] = self._attributes(error, dropped)
        notes = getattr(error, "__notes__", ())
        if isinstance(notes, list):
            node["notes"] = [cut(item) for item in notes[:_MOST_ATTRIBUTES] if type(item) is str]
        self._relatives(error, node, dropped, depth)
        node["dropped"] = dropped
        return node

    def _attributes(self, error: BaseException, dropped: list[str]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for name, item in _state(error):
            if len(kept) == _MOST_ATTRIBUTES:
                dropped.append(name)
                break
            value = self._keep(item, name, dropped, in_place=False)
            if value is not dropped:
                kept[name] = value
        return kept

    def _keep(self, value: Any, name: str, dropped: list[str], *, in_place: bool) -> Any:
        """Return the value if it can be stored, else a stand-in, or ``dropped`` itself for none."""
        if type(value) is str and len(value) > MOST_TEXT:
            return cut(value)
        with suppress(Exception):  # Attributes may be anything; losing one is not fatal.
            if len(self._codec.encode(value)) <= MOST_TEXT:
                return value
        dropped.append(name)
        return f"<{type(value).__qualname__}, not stored>" if in_place else dropped

    def _relatives(self, error: BaseException, node: dict[str, Any], dropped: list[str], depth: int) -> None:
        node["suppress"] = error.__suppress_context__
        for name, relative in (("cause", error.__cause__), ("context", error.__context__)):
            if relative is not None and (name == "cause" or not error.__suppress_context__):
                node[name] = self._relative(relative, name, dropped, depth)
        if isinstance(error, BaseExceptionGroup):
            members = (
                self._relative(member, f"exceptions[{index}]", dropped, depth)
                for index, member in enumerate(error.exceptions)
            )
            node["members"] = [member for member in members if member is not None]

    def _relative(self, error: BaseException, name: str, dropped: list[str], depth: int) -> dict[str, Any] | None:
        full = depth >= _MOST_DEPTH or len(self._seen) >= _MOST_NODES
        if full or id(error) in self._seen:
            dropped.append(name)
            return None
        return self.describe(error, depth + 1)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failed:  # noqa: BLE001 - user code
        return f"<its __str__ raised {type(failed).__name__}>"


def _state(error: BaseException) -> Iterator[tuple[str, Any]]:
    for name, item in list(getattr(error, "__dict__", {}).items()):
        if not name.startswith(_NOT_THEIRS):
            yield name, item
    for base in type(error).__mro__:
        if base.__flags__ & _HEAP_TYPE:
            for name, slot in base.__dict__.items():
                if isinstance(slot, MemberDescriptorType) and hasattr(error, name):
                    yield name, getattr(error, name)
    for cls, names in _HIDDEN:
        if isinstance(error, cls):
            for name in names:
                item = getattr(error, name, None)
                if item is not None:
                    yield name, item


def _shortened(node: dict[str, Any]) -> dict[str, Any]:
    """Return the texts of a description alone, short enough for any sensible size limit."""
    few = 2048
    return {
        "type": cut(node["type"], few),
        "message": cut(node["message"], few),
        "args": [cut(node["message"], few)],
        "traceback": cut(node["traceback"], few),
        "dropped": ["everything but the text: the whole was too large to store"],
    }


def _rebuild(node: dict[str, Any], where: tuple[str | None, str | None], depth: int) -> Any:
    error = _same_class(node, where, depth)
    if error is None or (depth == 0 and not _is_failure(error)):
        error = StepFailed(
            _text(node, "message"),
            type_name=_display(node),
            details=_mapping(node, "attributes"),
            traceback_text=_text(node, "traceback"),
            run_id=where[0],
            step=where[1],
        )
    for name in ("cause", "context"):
        if node.get(name) is not None and depth < _MOST_DEPTH:
            relative = _rebuild(_node(node[name]), where, depth + 1)
            _set(error, f"__{name}__", relative)
    _set(error, "__suppress_context__", bool(node.get("suppress")))
    notes = [note for note in _sequence(node, "notes") if isinstance(note, str)]
    if notes:
        _set(error, "__notes__", notes)
    if _text(node, "traceback"):
        vars(error)[TRACEBACK] = _text(node, "traceback")
    return error


def _set(error: BaseException, name: str, value: object) -> None:
    BaseException.__setattr__(error, name, value)  # Not setattr(): the class may refuse, as frozen dataclasses do.


def _is_failure(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, MemoryError)


def _same_class(node: dict[str, Any], where: tuple[str | None, str | None], depth: int) -> BaseException | None:
    cls = find_imported(_text(node, "type"))
    if cls is None or not issubclass(cls, BaseException):
        return None
    args = tuple(_sequence(node, "args"))
    if issubclass(cls, BaseExceptionGroup):
        members = [
            _rebuild(_node(member), where, depth + 1) for member in _sequence(node, "members") if depth < _MOST_DEPTH
        ]
        args = (*args[:1], members)
    # The constructor of the nearest class that C defines: no code of the user's class runs.
    base: Any = next(base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)
    try:
        error: BaseException = base.__new__(cls, *args)
        base.__init__(error, *args)
        if not issubclass(cls, BaseExceptionGroup):
            _set(error, "args", args)
        _restore(error, _mapping(node, "attributes"))
    except Exception:  # noqa: BLE001 - a class that needs more than was stored
        return None
    return error


def _restore(error: BaseException, attributes: dict[str, Any]) -> None:
    hidden = {name for cls, names in _HIDDEN if isinstance(error, cls) for name in names}
    state = getattr(error, "__dict__", {})
    for name, item in attributes.items():
        slot = next((b.__dict__[name] for b in type(error).__mro__ if name in b.__dict__), None)
        if name in hidden or isinstance(slot, MemberDescriptorType):
            object.__setattr__(error, name, item)
        else:
            state[name] = item  # Not setattr: a property of the class would run.


def _node(value: Any) -> dict[str, Any]:
    if type(value) is not dict or type(value.get("type")) is not str:
        raise CodecError("stored bytes are not an exception", hint="run `perdure verify`")
    return value


def _text(node: dict[str, Any], name: str) -> str:
    value = node.get(name, "")
    return value if isinstance(value, str) else ""


def _mapping(node: dict[str, Any], name: str) -> dict[str, Any]:
    value = node.get(name)
    if type(value) is not dict:
        return {}
    return {key: item for key, item in value.items() if isinstance(key, str)}


def _sequence(node: dict[str, Any], name: str) -> list[Any]:
    value = node.get(name)
    return value if type(value) is list else []


def _display(node: dict[str, Any]) -> str:
    return _text(node, "type").replace(":", ".", 1).removeprefix("builtins.")
