"""Writing many rows in one statement, within SQLite's limits."""

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from onerow.core.status import COMPLETED, FAILED
from onerow.core.task import FIELDS, JSON_FIELDS, TIME_FIELDS, Task
from onerow.ports import Inserted, Move, Swapped
from onerow.stores.sqlite import SqliteStore
from tests.conformance.kit import new


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "rows.db")
    store.prepare()
    yield store
    store.close()


def unlike(task: Task, number: int) -> Task:
    """Return an ended task whose values differ from those of other numbers in nearly every field."""
    changes: dict[str, object] = {"status": COMPLETED if number % 2 else FAILED, "priority": number % 100}
    for field in FIELDS:
        if field in changes or field in ("purged_at", "slot", "key_slot", "version"):
            continue
        value = getattr(task, field)
        if field in TIME_FIELDS:
            changes[field] = task.created_at + timedelta(seconds=number)
        elif field in JSON_FIELDS:
            changes[field] = f'{{"n":{number}}}' if field == "results_json" else f"[{number}]"
        elif isinstance(value, bool):
            changes[field] = bool(number % 2)
        elif isinstance(value, int) or field in ("elapsed_time", "children"):
            changes[field] = number
        else:
            changes[field] = f"{field} {number}"
    return replace(task, **changes)


def test_many_rows_without_shared_values_are_inserted_and_swapped(store: SqliteStore) -> None:
    store._connections.writer().setlimit(
        sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766
    )  # SQLite's default; Debian raises it
    seed = new(store)
    tasks = [unlike(seed, number) for number in range(1, 901)]
    assert all(isinstance(answer, Inserted) for answer in store.insert(tasks))
    ids = [task.task_id for task in tasks]
    assert sorted(store.fetch(ids), key=lambda task: task.created_at) == tasks

    moved = [replace(unlike(task, number + 2000), task_id=task.task_id, version=2) for number, task in enumerate(tasks)]
    answers = store.swap([Move(before, after) for before, after in zip(tasks, moved, strict=True)])
    assert all(isinstance(answer, Swapped) for answer in answers)
    assert sorted(store.fetch(ids), key=lambda task: task.created_at) == moved
