"""Query plans: the cost of a claim does not depend on the size of the table; SQLite counts its instructions."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onerow.core.filters import Filter
from onerow.core.times import spell
from onerow.ports import Claim, PhaseClaim
from onerow.stores.sqlite import SqliteStore
from onerow.stores.sqlite.claimable import claimable
from onerow.stores.sqlite.claiming import whole_rows
from onerow.stores.sqlite.counts import count
from tests.conformance.kit import HOUR, new

FILL = """
WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :count)
INSERT INTO task_queue (task_id, pipeline, type, priority, run_at)
SELECT :name || n, 'videos', 'script', n % 3 - 1, :run_at FROM n
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "onerow.db")
    store.prepare()
    yield store
    store.close()


def steps(connection: sqlite3.Connection, ask: Callable[[], object]) -> int:
    """Return how many instructions SQLite ran, rounded to hundreds."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 100
        return 0

    connection.set_progress_handler(count, 100)
    ask()
    connection.set_progress_handler(None, 0)
    return taken


def test_p14_the_cost_of_finding_due_tasks_does_not_depend_on_tasks_that_are_not_due(store: SqliteStore) -> None:
    now = store.now()
    store.insert([new(store, f"due{n}") for n in range(10)])
    with store._connections.write() as connection:
        alone = steps(connection, lambda: store_due(connection, spell(now + HOUR)))
        connection.execute(FILL, {"count": 100_000, "name": "early", "run_at": spell(now + 2 * HOUR)})
        crowded = steps(connection, lambda: store_due(connection, spell(now + HOUR)))
    # Two more priorities mean two more seeks; a scan of the other tasks would take a million instructions.
    assert crowded < alone + 500
    assert [task.task_id for task in store.due("videos", "script", now + HOUR, 500)] == [f"due{n}" for n in range(10)]


def test_due_tasks_are_read_in_index_order(store: SqliteStore) -> None:
    with store._connections.read() as connection:
        given = {"pipeline": "videos", "phase": "script", "now": spell(store.now()), "limit": 500, "keyed": 500}
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {whole_rows()}", given)]
    search = "SEARCH t USING INDEX task_ready (pipeline=? AND type=? AND priority=? AND <expr>=? AND run_at<?)"
    assert plan.count(search) == 2
    assert not any("TEMP B-TREE" in line or line.startswith("SCAN task") or line == "SCAN t" for line in plan), plan


def test_the_cost_of_a_claim_with_key_limits_does_not_depend_on_the_number_of_waiting_tasks(store: SqliteStore) -> None:
    def claimed() -> list[str]:
        wanted = PhaseClaim(pipeline="videos", phase="script", limit=10, lease_for=HOUR, key_slots=1)
        return [task.task_id for task in store.claim(Claim("w1", [wanted]))]

    store.insert([new(store, f"keyed{n:02}", limit_key=f"k{n % 3}") for n in range(20)])
    assert claimed() == ["keyed00", "keyed01", "keyed02"]  # one task per key; now all keys are full
    connection = store._connections.writer()
    alone = steps(connection, claimed)
    with store._connections.write():
        connection.execute(FILL, {"count": 100_000, "name": "behind", "run_at": spell(store.now())})
        connection.execute("UPDATE task_queue SET limit_key = 'k1' WHERE task_id LIKE 'behind%'")
    crowded = steps(connection, claimed)
    # It reads more candidates and scans keys; a scan of all tasks would take a million instructions.
    assert crowded < alone + 10_000
    store.insert([new(store, "free")])
    assert claimed() == ["free"]
    with store._connections.write():
        connection.execute(FILL, {"count": 20_000, "name": "each", "run_at": spell(store.now())})
        connection.execute("UPDATE task_queue SET limit_key = task_id WHERE task_id LIKE 'each%'")
    many_keys = steps(connection, claimed)
    assert many_keys < alone + 60_000  # some hundred keys are scanned, not all of them


def store_due(connection: sqlite3.Connection, by: str) -> None:
    given = {"pipeline": "videos", "phase": "script", "now": by, "limit": 500, "keyed": 500}
    assert len(connection.execute(whole_rows(), given).fetchall()) == 10


def test_p14_counting_claimable_tasks_does_not_read_tasks_that_are_not_due_or_beyond_the_bound(
    store: SqliteStore,
) -> None:
    now = store.now()
    wants = [
        PhaseClaim(pipeline="videos", phase="script", limit=100, lease_for=HOUR, slots=slots, key_slots=key_slots)
        for slots, key_slots in [(None, None), (200, None), (None, 2)]
    ]
    with store._connections.write() as connection:
        connection.execute(FILL, {"count": 1_000, "name": "due", "run_at": spell(now)})
        few = [steps(connection, lambda want=want: claimable(connection, want, now)) for want in wants]  # type: ignore[misc]
        connection.execute(FILL, {"count": 100_000, "name": "more", "run_at": spell(now)})
        connection.execute(FILL, {"count": 100_000, "name": "early", "run_at": spell(now + 2 * HOUR)})
        many = [steps(connection, lambda want=want: claimable(connection, want, now)) for want in wants]  # type: ignore[misc]
        assert [claimable(connection, want, now) for want in wants] == [100, 100, 100]
    assert all(after < before + 500 for before, after in zip(few, many, strict=True)), (few, many)


def test_p14_counting_children_does_not_read_other_tasks(store: SqliteStore) -> None:
    now = store.now()
    store.insert([new(store, f"child{n}", parent_id="parent") for n in range(10)])
    where = Filter(parent_id="parent", created_after=now - HOUR)
    with store._connections.write() as connection:
        alone = steps(connection, lambda: count(connection, where))
        connection.execute(FILL, {"count": 20_000, "name": "other", "run_at": spell(now)})
        connection.execute("UPDATE task_queue SET parent_id = 'another' WHERE task_id LIKE 'other1%'")
        crowded = steps(connection, lambda: count(connection, where))
        assert [each.count for each in count(connection, where)] == [10]
    assert crowded < alone + 500
