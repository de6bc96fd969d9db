"""Schemas 1 and 2 are in use: they must not change. A new schema is a numbered migration beside them."""

import hashlib
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import onerow
from onerow.stores.mongo import schema as mongo

STORES = Path(onerow.__file__).parent / "stores"
ADVICE = "this schema has changed; databases in use have the old one. Write a numbered migration instead."


def statements(store: str, number: int) -> str:
    """Return a migration of a SQL store without comments and line breaks."""
    text = (STORES / store / "sql" / f"schema_{number}.sql").read_text(encoding="utf-8")
    return " ".join(re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE).split())


def collection() -> str:
    """Return the validator and the indexes of schema 2 on MongoDB."""

    def plain(value: Any) -> Any:
        return value.isoformat() if isinstance(value, datetime) else value

    indexes = [(index.name, index.keys, index.unique, index.where) for index in mongo.INDEXES]
    builtins = msgspec.to_builtins([mongo.VALIDATOR, indexes], enc_hook=plain)
    return msgspec.json.encode(builtins, order="sorted").decode()


@pytest.mark.parametrize(
    "schema, expected",
    [
        pytest.param(lambda: statements("sqlite", 1), "42df053db003f3b4", id="sqlite 1"),
        pytest.param(lambda: statements("sqlite", 2), "e7c428dd68e93e67", id="sqlite 2"),
        pytest.param(lambda: statements("postgres", 1), "d4076592160d41c9", id="postgres 1"),
        pytest.param(lambda: statements("postgres", 2), "acdac12320995287", id="postgres 2"),
        pytest.param(collection, "d993b5a98792b48e", id="mongo 2"),
    ],
)
def test_a_schema_does_not_change(schema: Any, expected: str) -> None:
    assert hashlib.sha256(schema().encode()).hexdigest()[:16] == expected, ADVICE
