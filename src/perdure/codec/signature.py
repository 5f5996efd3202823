"""Arguments of a call to bytes and back.

Stored arguments are an object by parameter name, in the order of the signature, so one call
gives the same bytes whichever arguments were named. Extra positional arguments are under
``*name``, extra keyword arguments under ``**name``. Defaults are not filled in: a call stores
what was passed, and a default that changes later applies to it.

Whoever does not have the function cannot name positional arguments. They are stored in order under
`POSITIONAL`, and get their names where the function is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NoReturn, TypedDict
from weakref import WeakKeyDictionary

import msgspec

from perdure.codec.base import ENVELOPE, Chain, Codec
from perdure.codec.tagged.annotation import convert, fits
from perdure.codec.tagged.hints import hints_of
from perdure.errors import CodecError, UsageError

__all__ = [
    "CallSignature",
    "by_name",
    "decode_call",
    "digest",
    "encode_call",
    "encode_unknown",
    "from_json_input",
    "signature_of",
]

POSITIONAL = "*"
_POSITIONS = b'{"*":'

_decode = msgspec.json.Decoder().decode
_encode_ordered = msgspec.json.Encoder(order="deterministic").encode


class CallSignature:
    """What a function takes and returns, resolved once.

    Attributes:
        name: The function's name, for messages.
        hints: Annotation of each parameter, and of ``*name`` and ``**name`` as a whole; `Any`
            where there is none or it cannot be resolved.
        returns: The return annotation, likewise.
        shape: The stored form of a call, as an annotation.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self.name: str = name or str(getattr(function, "__name__", "function"))
        resolved = hints_of(function)
        self.returns: Any = resolved.get("return", Any)
        self.hints: dict[str, Any] = {}
        self._positional: tuple[str, ...] = ()
        self._by_name: set[str] = set()
        self._required: set[str] = set()
        self._var_positional = self._var_keyword = ""
        for parameter in inspect.signature(function).parameters.values():
            self._add(parameter, resolved.get(parameter.name, Any))
        # With this many positional arguments and no others, nothing is missing. Positional
        # parameters without default come first; a required keyword makes it too many to reach.
        needed = self._required.issubset(self._positional)
        self._most = len(self._positional)
        self._enough = len(self._required) if needed else self._most + 1
        make: Any = TypedDict
        self.shape: Any = make(self.name, self.hints, total=False)

    def _add(self, parameter: inspect.Parameter, hint: Any) -> None:
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            self._var_positional = f"*{name}"
            self.hints[self._var_positional] = list[hint]
            return
        if parameter.kind is parameter.VAR_KEYWORD:
            self._var_keyword = f"**{name}"
            self.hints[self._var_keyword] = dict[str, hint]
            return
        self.hints[name] = hint
        if parameter.kind is not parameter.KEYWORD_ONLY:
            self._positional += (name,)
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            self._by_name.add(name)
        if parameter.default is parameter.empty:
            self._required.add(name)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], label: str = "") -> dict[str, Any]:
        """Return the arguments by parameter name, as they are stored.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            label: The call as messages show it; the function's name by default.

        Raises:
            UsageError: Python would refuse the call.
        """
        if not kwargs and self._enough <= len(args) <= self._most:
            if len(args) == 1:  # a tenth of what follows
                return {self._positional[0]: args[0]}
            return dict(zip(self._positional, args))  # noqa: B905 - saying `strict=False` makes it half as dear again
        return self._bound(args, kwargs, label)

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any], label: str) -> dict[str, Any]:
        """Return any call as it is stored."""
        label = label or self.name
        given = dict(zip(self._positional, args, strict=False))
        rest = args[len(self._positional) :]
        if rest and not self._var_positional:
            most = len(self._positional)
            raise UsageError(f"{label}: takes at most {most} positional arguments, got {len(args)}")
        others: dict[str, Any] = {}
        for name, value in kwargs.items():
            if name not in self._by_name:
                others[name] = value
            elif name in given:
                raise UsageError(f"{label}: argument {name!r} is given twice")
            else:
                given[name] = value
        if others and not self._var_keyword:
            self._refuse_unknown(label, next(iter(others)))
        missing = [name for name in self.hints if name in self._required and name not in given]
        if missing:
            raise UsageError(f"{label}: missing argument {', '.join(map(repr, missing))}")
        stored = {name: given[name] for name in self.hints if name in given}
        if rest:
            stored[self._var_positional] = list(rest)
        if others:
            stored[self._var_keyword] = others
        return stored

    def _refuse_unknown(self, label: str, name: str) -> NoReturn:
        takes = ", ".join(n for n in self.hints if n in self._by_name) or "no named arguments"
        raise UsageError(f"{label}: has no argument {name!r}", hint=f"it takes {takes}")

    def unbind(self, stored: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments for what `bind` returned.

        Raises:
            CodecError: The function's parameters are not those the call was stored for.
        """
        if self._enough <= len(stored) <= len(self._positional) and tuple(stored) == self._positional[: len(stored)]:
            return tuple(stored.values()), {}
        unknown = [name for name in stored if name not in self.hints]
        missing = [name for name in self.hints if name in self._required and name not in stored]
        if unknown or missing:
            what = ", ".join(map(repr, unknown or missing))
            verb = "no longer takes" if unknown else "now also needs"
            raise CodecError(
                f"{self.name}: {verb} {what}, unlike when the call was stored",
                hint="run it on the code it was stored for",
            )
        args: list[Any] = []
        for name in self._positional:
            if name not in stored:
                break
            args.append(stored[name])
        by_position = self._positional[: len(args)]
        kwargs = {name: value for name, value in stored.items() if name in self._by_name and name not in by_position}
        args.extend(stored.get(self._var_positional, ()))
        kwargs.update(stored.get(self._var_keyword, {}))
        return tuple(args), kwargs


# Weak: functions come and go with versions of workflow code, and with tests.
_signatures: WeakKeyDictionary[Callable[..., Any], CallSignature] = WeakKeyDictionary()


def signature_of(function: Callable[..., Any]) -> CallSignature:
    """Return the signature of a function, resolved at the first call and kept.

    Raises:
        UsageError: Its parameters cannot be known (some builtins).
    """
    found = _signatures.get(function)
    if found is None:
        try:
            found = CallSignature(function)
        except ValueError as error:
            raise UsageError(f"the parameters of {function!r} cannot be known") from error
        _signatures[function] = found
    return found


def encode_call(
    signature: CallSignature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    codec: Codec,
    *,
    label: str = "",
) -> bytes:
    """Return the bytes for the arguments of a call.

    Args:
        signature: Of the function to be called.
        args: Positional arguments.
        kwargs: Keyword arguments.
        codec: Stores them.
        label: The call as messages show it, such as ``start(charge)``.

    Raises:
        UsageError: Python would refuse the call.
        CodecError: An argument cannot be stored; names it, with path and type.
    """
    stored = signature.bind(args, kwargs, label)
    try:
        return codec.encode(stored, signature.shape)
    except CodecError as error:
        _name_argument(signature, stored, codec, label or signature.name)
        error.args = (f"{label or signature.name}: {error.text}",)
        raise


def _name_argument(signature: CallSignature, stored: dict[str, Any], codec: Codec, label: str) -> None:
    """Raise the error for the one argument that is refused on its own, if there is one."""
    for name, value in stored.items():
        try:
            codec.encode(value, signature.hints[name])
        except CodecError as error:
            path = name + error.path.removeprefix("$")
            at = "" if path == name else f" at {path}"
            text = error.text.replace(f" at {error.path}", "", 1)
            raise CodecError(
                f"{label}: argument {name!r}{at}: {text}",
                path=f"$.{path}",
                type_name=error.type_name,
                reason=error.reason,
                hint=error.hint,
            ) from error.__cause__


def decode_call(signature: CallSignature, data: bytes, codec: Codec) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments that were stored.

    Raises:
        CodecError: The bytes are damaged, or stored for other parameters.
    """
    if data[:5] == _POSITIONS or data[:1] == b"\0":
        data = by_name(signature, data, codec)
    stored = codec.decode(data, signature.shape)
    if type(stored) is not dict:
        raise CodecError(f"{signature.name}: stored bytes are not the arguments of a call")
    return signature.unbind(stored)


def encode_unknown(args: Sequence[Any], kwargs: Mapping[str, Any], codec: Codec, *, label: str) -> bytes:
    """Return the bytes for a call of a function that is not here.

    Raises:
        UsageError: an argument has the name that is kept for positional ones.
        CodecError: An argument cannot be stored; names it, with path and type.
    """
    if POSITIONAL in kwargs:
        raise UsageError(f"{label}: no argument can have the name {POSITIONAL!r}")
    try:
        return codec.encode({POSITIONAL: list(args), **kwargs} if args else kwargs)
    except CodecError as error:
        error.args = (f"{label}: {error.text}",)
        raise


def by_name(signature: CallSignature, data: bytes, codec: Codec) -> bytes:
    """Return stored arguments with every positional one under its name.

    Raises:
        CodecError: The function does not take them.
    """
    stored = codec.decode(data)
    if type(stored) is not dict or POSITIONAL not in stored:
        return data
    args = stored.pop(POSITIONAL)
    try:
        return codec.encode(signature.bind(args, stored))
    except UsageError as error:
        raise CodecError(
            f"the stored call does not fit: {error.text}", hint="start it with arguments the workflow takes"
        ) from error


def digest(data: bytes, codec: Codec | None = None, *, named: bool = False) -> int:
    """Return a signed 64-bit number that is equal for equal values.

    Dicts count as equal whatever their order, as in Python.

    Args:
        named: The outermost dict need not be in the order of a signature.
        data: Stored bytes.
        codec: The codec they were stored with; needed where it transforms bytes, since what
            encryption gives differs from time to time.
    """
    if data[:1] == b"\0" and isinstance(codec, Chain):
        data = codec.unwrap(data)
    # With no object inside the outermost there is no order to level out.
    if (named or data.find(b"{", 1) > 0) and data[0] != ENVELOPE:
        tree = _decode(data)
        data = _encode_ordered(_canonical(tree) if data.find(b'"$"') >= 0 else tree)
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)


def _canonical(node: Any) -> Any:
    if type(node) is list:
        return [_canonical(item) for item in node]
    if type(node) is not dict:
        return node
    node = {name: _canonical(item) for name, item in node.items()}
    if node.get("$") == "dict" and type(node.get("v")) is list:
        node["v"] = sorted(node["v"], key=_encode_ordered)
    return node


def from_json_input(
    signature: CallSignature, text: str | bytes, *, label: str = ""
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments a person gave as JSON: object, array, or a single value.

    An object becomes keyword arguments, an array positional ones, anything else the single
    argument; each is turned into what its annotation asks for.

    Args:
        signature: Of the function to be called.
        text: The JSON text.
        label: The call as messages show it.

    Raises:
        UsageError: The text is not JSON, the call is wrong, or a value does not fit; one line.
    """
    label = label or signature.name
    try:
        value = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UsageError(f"{label}: the input is not JSON: {error}") from error
    if type(value) is dict:
        stored = signature.bind((), value, label)
    else:
        stored = signature.bind(value if type(value) is list else (value,), {}, label)
    for name, item in stored.items():
        if fits(item, signature.hints[name]):
            continue
        try:
            stored[name] = convert(item, signature.hints[name])
        except Exception as error:
            why = " ".join(str(error).split())[:500]
            raise UsageError(f"{label}: argument {name!r}: {why}") from error
    return signature.unbind(stored)
