"""Names that users' scripts and programs depend on don't change by accident."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.surface import FILE, collect


def test_the_public_surface_is_the_recorded_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorded = dict(_flat(json.loads(FILE.read_text(encoding="utf-8"))))
    found = dict(_flat(json.loads(json.dumps(collect(tmp_path)))))
    gone = sorted(set(recorded.items()) - set(found.items()))
    new = sorted(set(found.items()) - set(recorded.items()))
    assert (gone, new) == ([], []), (
        "the public surface changed. If it should: list the change in CHANGELOG.md, "
        "then run python -m tests.compatibility.surface"
    )


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}/{key}")
    elif isinstance(value, list) and all(isinstance(inner, str) for inner in value) and "signatures" not in path:
        for inner in value:
            yield f"{path}/{inner}", ""
    else:
        yield path, json.dumps(value)
