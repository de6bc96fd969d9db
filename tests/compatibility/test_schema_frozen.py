"""Schema 1 is in use: it must not change. A new schema is a numbered migration beside it."""

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
ADVICE = "schema 1 has changed; databases in use have the old one. Write a numbered migration instead."


def statements(store: str) -> str:
    """Return schema 1 of a SQL store without comments and line breaks."""
    text = (STORES / store / "sql" / "schema_1.sql").read_text(encoding="utf-8")
    return " ".join(re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE).split())


def collection() -> str:
    """Return the validator and the indexes of schema 1 on MongoDB."""

    def plain(value: Any) -> Any:
        return value.isoformat() if isinstance(value, datetime) else value

    indexes = [(index.name, index.keys, index.unique, index.where) for index in mongo.INDEXES]
    builtins = msgspec.to_builtins([mongo.VALIDATOR, indexes], enc_hook=plain)
    return msgspec.json.encode(builtins, order="sorted").decode()


@pytest.mark.parametrize(
    "schema, expected",
    [
        pytest.param(lambda: statements("sqlite"), "42df053db003f3b4", id="sqlite"),
        pytest.param(lambda: statements("postgres"), "d4076592160d41c9", id="postgres"),
        pytest.param(collection, "8c0511c87bcb6c03", id="mongo"),
    ],
)
def test_schema_1_does_not_change(schema: Any, expected: str) -> None:
    assert hashlib.sha256(schema().encode()).hexdigest()[:16] == expected, ADVICE
