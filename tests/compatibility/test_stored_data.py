"""Stores that earlier code wrote: today's code opens each, reads every task, and drains it."""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from onerow.core.filters import Filter
from onerow.core.status import FAILED, PROCESSING, WAITING
from onerow.engine.queue.queue import Queue
from onerow.ports import Store
from tests.compatibility import stores
from tests.compatibility.contents import EXPECTED, drain, key_is_remembered
from tests.compatibility.stores import DATA, file_of

CHECKSUMS = {
    name: checksum
    for checksum, name in (line.split() for line in (DATA / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
}


@pytest.fixture(params=[f"{kind} {schema}" for kind in ("sqlite", "postgres", "mongo") for schema in (1, 2)])
def restored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kind, schema = request.param.split()
    source = file_of(kind, int(schema))
    restore: Callable[[Path, str], Store]
    if kind == "sqlite":
        store = stores.restore_sqlite(source, tmp_path / "fixture.db")
    else:
        restore = stores.restore_postgres if kind == "postgres" else stores.restore_mongo
        store = restore(source, request.getfixturevalue(f"{kind}_url"))
    store.prepare()
    yield store
    store.close()


def test_a_fixture_is_never_rewritten() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in DATA.glob("*.gz")}
    assert found == CHECKSUMS


def test_today_s_code_reads_every_task_of_an_earlier_store(restored: Store) -> None:
    queue = Queue(restored)
    tasks = {task.task_id: task for task in queue.find(Filter(), limit=500).tasks}
    assert set(EXPECTED) <= set(tasks)
    assert tasks["한국어 🎬"].title == "한국어 🎬"
    assert tasks["parked"].payload == {"topic": "parked", "size": 2**53, "part": 0.5}
    assert tasks["parked"].awaiting == "signal:images.ready"
    assert tasks["parked"].results["script"]["text"] == "parked…end"
    assert tasks["album"].awaiting == "children"
    assert tasks["album"].children == 3
    assert tasks["leased"].status is PROCESSING
    assert tasks["retrying"].status is WAITING
    assert tasks["retrying"].retry_count == 1
    assert tasks["failed"].error == "no such topic"
    assert tasks["failed"].error_class == "permanent"
    assert [entry.what for entry in tasks["cancelled"].history][-1] == "cancel"
    assert [line.text for line in queue.logs("parked").lines] == ["writing about parked"]


def test_today_s_code_drains_an_earlier_store(restored: Store) -> None:
    assert drain(restored) == EXPECTED
    queue = Queue(restored)
    assert queue.get("album").results["press"] == 3
    assert queue.get("leased").results["upload"].startswith("published leased")


def test_unique_keys_that_an_earlier_store_remembers_are_still_taken(restored: Store) -> None:
    assert key_is_remembered(restored, "key-2"), "of a completed task"
    assert key_is_remembered(restored, "key-3"), "of a purged task"


STUCK = "UPDATE {}task_queue SET status = 'processing' WHERE task_id = 'retrying'"


def test_a_damaged_file_of_schema_1_can_be_migrated(tmp_path: Path) -> None:
    store = stores.restore_sqlite(file_of("sqlite", 1), tmp_path / "fixture.db")
    with closing(sqlite3.connect(tmp_path / "fixture.db", isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO onerow_note VALUES ('pipeline', 'damaged', 1, '{broken', '2026-11-15T02:29:57.123Z')"
        )
        connection.execute("CREATE VIEW broken AS SELECT * FROM gone")
        kept = connection.execute("SELECT * FROM onerow_note WHERE name <> 'damaged' ORDER BY 1, 2").fetchall()
        connection.execute(STUCK.format(""))
        store.prepare()
        assert connection.execute("SELECT * FROM onerow_note ORDER BY 1, 2").fetchall() == kept
    _expect_no_stuck_task(store)


def test_a_damaged_postgresql_schema_1_can_be_migrated(postgres_url: str) -> None:
    store = stores.restore_postgres(file_of("postgres", 1), postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(STUCK.format("onerow."))
    store.prepare()
    _expect_no_stuck_task(store)


def _expect_no_stuck_task(store: Store) -> None:
    assert "retrying" not in {lease.task_id for lease in store.leases(limit=100)}
    (task,) = store.fetch(["retrying"])
    assert (task.status, task.error_class) == (FAILED, "corrupt")
    store.close()
