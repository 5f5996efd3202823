"""Configuration is frozen as one text for equal data, and what looks like a secret is named, never shown."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from perdure.errors import InvalidValue
from perdure.version.config import freeze, secrets_in
from tests.version.projects import identity, shop, write


class Mode(enum.Enum):
    FAST = "fast"


@dataclass
class Limits:
    most: int = 5
    names: list[str] = field(default_factory=lambda: ["a"])


class Model(pydantic.BaseModel):
    mode: Mode = Mode.FAST
    since: datetime = datetime(2026, 3, 2, tzinfo=UTC)


class Struct(msgspec.Struct):
    price: Decimal = Decimal("1.50")


@pytest.mark.parametrize(
    "value,frozen",
    [
        ({"b": 1, "a": [1.5, None, True, "é"]}, '{"a":[1.5,null,true,"\\u00e9"],"b":1}'),
        ({2: "two", 1: "one"}, '{"1":"one","2":"two"}'),
        (Limits(), '{"most":5,"names":["a"]}'),
        (Model(), '{"mode":"fast","since":"2026-03-02T00:00:00Z"}'),
        (
            {"inner": Model(), "struct": Struct()},
            '{"inner":{"mode":"fast","since":"2026-03-02T00:00:00Z"},"struct":{"price":"1.50"}}',
        ),
        ({"c", "a", "b"}, '["a","b","c"]'),
        ((), "[]"),
        (0, "0"),
    ],
)
def test_a_value_has_one_text(value: Any, frozen: str) -> None:
    assert freeze(value) == f'{{"config":{frozen}}}'


def test_no_configuration_is_no_text() -> None:
    assert freeze(None) == ""


@pytest.mark.parametrize("value", [object(), {"f": print}, float("nan"), {"x": float("inf")}])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue, match="no JSON form"):
        freeze(value)


def test_files_are_read_as_what_they_are(tmp_path: Path) -> None:
    write(
        tmp_path, {"a.json": '{"b": 1,\n "a": 2}', "b.toml": "# why\nx = 1979-05-27\n[t]\ny = 2\n", "c.yaml": "k: v\n"}
    )
    frozen = freeze(None, [(name, tmp_path / name) for name in ("c.yaml", "b.toml", "a.json")])
    assert json.loads(frozen) == {
        "config": None,
        "files": {"a.json": {"a": 2, "b": 1}, "b.toml": {"x": "1979-05-27", "t": {"y": 2}}, "c.yaml": "k: v\n"},
    }


@pytest.mark.parametrize("name,text", [("a.json", "{"), ("a.toml", "="), ("a.yaml", None), ("b.yaml", b"\xff")])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str | bytes | None) -> None:
    if text is not None:
        write(tmp_path, {name: text})
    with pytest.raises(InvalidValue, match=f"config_files='{name}' cannot be read"):
        freeze(None, [(name, tmp_path / name)])


def test_the_order_of_keys_does_not_matter_and_values_do(tmp_path: Path) -> None:
    write(tmp_path, shop(""))
    one = identity(tmp_path, config={"a": 1, "b": {"c": 2, "d": 3}})
    assert identity(tmp_path, config={"b": {"d": 3, "c": 2}, "a": 1}).sha256 == one.sha256
    assert identity(tmp_path, config={"a": 1, "b": {"c": 2, "d": 4}}).sha256 != one.sha256
    assert identity(tmp_path).sha256 != identity(tmp_path, config={}).sha256


SECRETS = {
    "password": {"db": {"password": "hunter2"}},
    "token": {"tokens": ["x"], "api_token": "abc"},
    "key": {"apiKey": "abc"},
    "list": [{"secret": "s"}],
    "url": {"url": "postgresql://ana:hunter2@db/shop"},
    "aws": {"x": "AKIAABCDEFGHIJKLMNOP"},
    "pem": {"x": "-----BEGIN RSA PRIVATE KEY-----\n..."},
    "jwt": {"x": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln"},
}


@pytest.mark.parametrize("value", SECRETS.values(), ids=SECRETS)
def test_what_looks_like_a_secret_is_named(value: Any) -> None:
    (notice,) = secrets_in(freeze(value), "order")
    assert notice.code == "secret_in_config"
    assert "hunter2" not in notice.text
    assert "AKIA" not in notice.text


def test_the_warning_says_where_and_what_to_do() -> None:
    (notice,) = secrets_in(freeze({"db": {"password": "hunter2"}}), "order")
    assert notice.text == (
        "config of order holds what looks like a secret at config.db.password; it is stored with the version and "
        "cannot be rotated. Read it from the environment instead."
    )


@pytest.mark.parametrize(
    "value",
    [
        {"max_tokens": 4096}, {"token_limit": "many"}, {"password": ""}, {"password": "${DB_PASSWORD}"},
        {"password": "<from the vault>"}, {"url": "https://example.org/a@b"}, {"author": "ana"}, {"monkey": "x"}, None,
    ],
)  # fmt: skip
def test_what_is_no_secret_is_not_named(value: Any) -> None:
    assert secrets_in(freeze(value), "order") == []
