"""Configuration that is frozen with a version: canonical JSON, and a warning for what looks like a secret.

What belongs to the place and not to the definition stays outside, because it must rotate: environment variables,
secrets, connection strings.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.errors import InvalidValue
from perdure.version.notice import Notice

_SECRET_KEY: Final = re.compile(
    r"(^|[_\-.])(password|passwd|passphrase|secret|token|credentials?|private_?key|api_?key|access_?key|auth)s?$",
    re.IGNORECASE,
)
_SECRET_VALUE: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[opsu]_[0-9A-Za-z]{36}"
    r"|\bsk_live_[0-9A-Za-z]{16}|\bxox[abpr]-[0-9A-Za-z-]{10}|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.|://[^/\s:@]+:[^/\s:@]+@"
)
_PLACEHOLDER: Final = re.compile(r"\$\{?\w+\}?|<.*>|\*+|\{\{.*\}\}|")


def freeze(value: Any, files: Iterable[tuple[str, Path]] = ()) -> str:
    """Return a configuration as canonical JSON: sorted keys, no blanks, ASCII.

    Args:
        value: what JSON can hold, or a dataclass, struct, model or enum of such; None for nothing.
        files: configuration files, by the name they were given. JSON and TOML are parsed, others are kept as text.

    Raises:
        InvalidValue: something in it has no JSON form, or a file cannot be read.
    """
    read = {name: _read(name, file) for name, file in files}
    if value is None and not read:
        return ""
    frozen = {"config": _plain(value, "config="), **({"files": read} if read else {})}
    return canonical_json(frozen)


def canonical_json(value: Any) -> str:
    """Return plain data as JSON, the same text for equal data.

    Raises:
        InvalidValue: it holds a number that JSON cannot.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise InvalidValue(f"configuration has no JSON form: {error}") from error


def secrets_in(frozen: str, workflow: str) -> list[Notice]:
    """Return a warning for each value in a frozen configuration that looks like a secret. No text holds the value."""
    if not frozen:
        return []
    return [
        Notice(
            "secret_in_config",
            f"config of {workflow} holds what looks like a secret at {path}; it is stored with the version and cannot "
            "be rotated. Read it from the environment instead.",
        )
        for path, value in _texts(json.loads(frozen), "")
        if not _PLACEHOLDER.fullmatch(value) and (_SECRET_KEY.search(path) or _SECRET_VALUE.search(value))
    ]


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _texts(item, f"{path}[{number}]")


def _plain(value: Any, what: str) -> Any:
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_model, order="sorted")
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"{what} has no JSON form: {error}") from error


def _model(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json")


def _read(name: str, file: Path) -> Any:
    try:
        text = file.read_bytes().decode("utf-8-sig")
        if file.suffix == ".json":
            return json.loads(text)
        return _plain(tomllib.loads(text), name) if file.suffix == ".toml" else text
    except (OSError, ValueError) as error:
        raise InvalidValue(f"config_files={name!r} cannot be read: {error}") from error
