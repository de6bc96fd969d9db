"""Query plans: all statements use an index, at any table size and with any statistics."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from onerow.core import rules
from onerow.core.filters import Filter, Order
from onerow.core.status import CANCELLED, COMPLETED, ENDS, FAILED, PROCESSING, WAITING
from onerow.ports import Claim, Lease, LogLine, Move, Swapped
from onerow.stores.postgres import PostgresStore
from onerow.stores.postgres.claiming import _claim_sql
from onerow.stores.postgres.fast import low_water
from tests.conformance.kit import HOUR, MINUTE, claim, claimed_ids, put_many, want

MILLION = 1_000_000

FILL = """
INSERT INTO onerow.task_queue (task_id, pipeline, type, status, priority, run_at, completed_at, leased_by, leased_until, token)
SELECT %(name)s || n, 'videos', %(phase)s, %(status)s::text, %(priority)s, clock_timestamp() + %(later)s * interval '1 s',
       CASE WHEN %(status)s::text IN ('completed', 'failed', 'cancelled') THEN clock_timestamp() - n * interval '1 ms' END,
       CASE WHEN %(status)s::text = 'processing' THEN 'w9' END,
       CASE WHEN %(status)s::text = 'processing' THEN clock_timestamp() + %(later)s * interval '1 s' END, 1
  FROM generate_series(1, %(count)s) AS n
"""


def fill(sql: psycopg.Connection, name: str, count: int, **more: Any) -> None:
    given = {"status": "waiting", "phase": "script", "priority": 0, "later": -60}
    sql.execute(FILL, {"name": name, "count": count} | given | more)


@contextmanager
def explained(store: PostgresStore, *, loaded: bool = False) -> Iterator[list[str]]:
    """Collect the plans of all statements that the store runs in the block, with auto_explain.

    loaded: auto_explain is already loaded and set up, for a role that may not do it.
    """
    plans: list[str] = []
    store.close()
    opening = store._connections.open

    def open_and_explain() -> Any:
        connection = opening()
        if not loaded:
            connection.execute("LOAD 'auto_explain'")
            for name, value in {"log_min_duration": "0", "log_analyze": "on", "log_buffers": "on"}.items():
                connection.execute(f"SET auto_explain.{name} = {value}")
        connection.execute("SET client_min_messages = log")
        connection.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
        return connection

    store._connections.open = open_and_explain  # type: ignore[method-assign]
    try:
        yield plans
    finally:
        store._connections.open = opening  # type: ignore[method-assign]
        store.close()


def rows_read(plan: str) -> int:
    """Return the largest number of rows that a scan of the table read, including filtered rows."""
    most = 0
    lines = plan.splitlines()
    for number, line in enumerate(lines):
        if "on task_queue" in line and (found := re.search(r"actual time=\S+ rows=([\d.]+) loops=(\d+)", line)):
            read = float(found[1]) * int(found[2])
            for below in lines[number + 1 : number + 6]:
                if "Removed" in below and (gone := re.search(r"Removed by .*: (\d+)", below)):
                    read += int(gone[1]) * int(found[2])
            most = max(most, round(read))
    return most


def of_table(plans: list[str]) -> list[str]:
    found = [plan for plan in plans if "on task_queue" in plan]
    assert found, plans
    return found


def must_use_indexes(plans: list[str], *, at_most: int) -> None:
    for plan in of_table(plans):
        assert "Seq Scan on task_queue" not in plan, plan
        assert rows_read(plan) <= at_most, plan


def run_all_operations(store: PostgresStore, number: int) -> None:
    """Run all regular operations of a worker."""
    held = claim(store, 20)
    assert len(held) == 20
    claim(store, 3, phase="limited", slots=1000)
    claim(store, 3, phase="keyed", key_slots=2)
    claim(store, ids=[f"named{number}"])
    assert store.claimable(want(100), store.now()) == 100
    store.claimable(want(100, "limited", slots=1000), store.now())
    store.claimable(want(100, "keyed", key_slots=2), store.now())
    assert len(store.extend([Lease(task.task_id, task.token) for task in held], MINUTE)) == 20
    moves = [Move(task, rules.finish(task, None, store.now())) for task in held[:10]]
    moves += [Move(task, rules.hand_back(task, store.now())) for task in held[10:]]
    store.settle_and_claim(moves, Claim("w1", [want(5), want(5, "video")]))
    done = store.fetch([task.task_id for task in held[:10]])
    assert store.remove(done) == 10
    deleted = claim(store, 5)
    store.append_log([LogLine(deleted[0].task_id, store.now(), "script", 1, "out", "line")])
    answers = store.swap([Move(task, rules.finish(task, None, store.now()), remove=True) for task in deleted])
    assert all(isinstance(answer, Swapped) for answer in answers)


SIZES = [
    pytest.param(40_000, id="40,000"),
    pytest.param(MILLION, id="1,000,000", marks=[pytest.mark.slow]),
]


@pytest.mark.parametrize("rows", SIZES)
def test_all_worker_operations_use_an_index_at_any_table_size(
    store: PostgresStore, sql: psycopg.Connection, rows: int
) -> None:
    """P14: with any number of waiting tasks, due or not, and of ended tasks."""
    fill(sql, "early", rows // 2, priority=-5, later=3600)
    fill(sql, "ended", rows // 2, status="completed")
    fill(sql, "due", 5_000)
    fill(sql, "limited", 5_000, phase="limited")
    fill(sql, "keyed", 5_000, phase="keyed")
    fill(sql, "named", 10)
    sql.execute("UPDATE onerow.task_queue SET limit_key = 'k' || right(task_id, 2) WHERE type = 'keyed'")
    for analyzed in (False, True):
        if analyzed:
            sql.execute("VACUUM ANALYZE onerow.task_queue")
        with explained(store) as plans:
            for number in range(1, 4):
                run_all_operations(store, number)
        must_use_indexes(plans, at_most=300)


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize("rows", SIZES)
def test_rescue_purge_and_pages_use_an_index_at_any_table_size(
    store: PostgresStore, sql: psycopg.Connection, rows: int, analyzed: bool
) -> None:
    """A table that was just filled has no statistics, and workers query it every second."""
    fill(sql, "due", rows // 2)
    fill(sql, "ended", rows // 2, status="completed")
    fill(sql, "failed", 100, status="failed")
    fill(sql, "cancelled", 7, status="cancelled")
    fill(sql, "dead", 100, status="processing", later=-30)
    fill(sql, "alive", 2_000, status="processing", later=30)
    if analyzed:
        sql.execute("VACUUM ANALYZE onerow.task_queue")
    now = store.now()
    asked: list[tuple[Filter, Order, int]] = [
        (Filter(statuses=frozenset({PROCESSING}), lease_ended_before=now), "oldest", 100),  # rescue
        (Filter(statuses=ENDS, ended_before=now - timedelta(seconds=rows / 10_000)), "ended", 500),  # purge
        (Filter(statuses=frozenset({COMPLETED})), "latest", 500),
        (Filter(statuses=frozenset({FAILED})), "latest", 100),
        (Filter(statuses=frozenset({CANCELLED}), ended_after=now - HOUR), "ended", 7),
        (Filter(statuses=frozenset({PROCESSING}), leased_by="w9", cancel_requested=True), "oldest", 0),
        (Filter(statuses=frozenset({WAITING}), parked=True, awaiting="children"), "due", 0),
        (Filter(held_until_before=now, hidden=True), "oldest", 0),
        (Filter(parked=True, due_before=now), "due", 0),
        (Filter(statuses=frozenset({WAITING}), parked=False, pipeline="unknown"), "newest", 0),
        (Filter(), "newest", 500),
        (Filter(), "oldest", 500),
        (Filter(parent_id="unknown"), "oldest", 0),
        (Filter(id_prefix="failed1"), "newest", 12),
    ]
    for where, order, count in asked:
        with explained(store) as plans:
            assert len(store.find(where, limit=500, order=order).tasks) == count, where
        must_use_indexes(plans, at_most=2_300)
    with explained(store) as plans:
        assert len(store.leases(limit=5_000)) == 2_100
    must_use_indexes(plans, at_most=2_300)


@pytest.mark.parametrize("analyzed", [True, False])
def test_p14_children_are_counted_by_an_index(store: PostgresStore, sql: psycopg.Connection, analyzed: bool) -> None:
    """A parent that waits counts its children each time that one of them ends."""
    fill(sql, "other", 20_000)
    fill(sql, "child", 20, phase="video")
    sql.execute("UPDATE onerow.task_queue SET parent_id = 'another' WHERE task_id LIKE 'other1%'")
    sql.execute("UPDATE onerow.task_queue SET parent_id = 'parent' WHERE type = 'video'")
    if analyzed:
        sql.execute("VACUUM ANALYZE onerow.task_queue")
    with explained(store) as plans:
        counted = store.count(Filter(parent_id="parent", created_after=store.now() - HOUR))
    assert [each.count for each in counted] == [20]
    must_use_indexes(plans, at_most=40)
    assert all("task_child" in plan for plan in of_table(plans))


def test_a_plan_made_for_an_empty_table_is_good_for_a_full_one(store: PostgresStore, sql: psycopg.Connection) -> None:
    """A connection keeps its plans until it is closed, and statistics lag by minutes."""
    sql.execute("ALTER TABLE onerow.task_queue SET (autovacuum_enabled = off)")
    sql.execute("VACUUM ANALYZE onerow.task_queue")  # from now on the statistics describe an empty table
    put_many(store, 30)
    for _ in range(10):
        held = claim(store, 2)
        store.settle_and_claim(
            [Move(task, rules.hand_back(task, store.now())) for task in held], Claim("w1", [want(1)])
        )
        store.extend([Lease(task.task_id, task.token) for task in held], MINUTE)
    fill(sql, "due", 60_000)
    with explained(store) as plans:
        for number in range(1, 8):
            run_all_operations(store, number)
    must_use_indexes(plans, at_most=300)


@pytest.mark.parametrize("analyzed", [True, False])
def test_tasks_that_are_not_due_are_not_scanned(store: PostgresStore, sql: psycopg.Connection, analyzed: bool) -> None:
    """P14, for phases without a handler, which are queried every second."""
    for priority in (-5, 0, 5):
        fill(sql, f"early{priority}", 20_000, priority=priority, later=3600)
    fill(sql, "due", 700)
    if analyzed:
        sql.execute("VACUUM ANALYZE onerow.task_queue")
    with explained(store) as plans:
        for _ in range(7):  # enough for PostgreSQL to switch to a generic plan
            assert len(store.due("videos", "script", store.now(), 500)) == 500
            assert store.due("videos", "script", store.now() - HOUR, 500) == []
    must_use_indexes(plans, at_most=510)


@pytest.mark.parametrize("analyzed", [True, False])
def test_phases_with_due_tasks_are_found_by_index_seeks(
    store: PostgresStore, sql: psycopg.Connection, analyzed: bool
) -> None:
    fill(sql, "early", 20_000, priority=-5, later=3600)
    fill(sql, "due", 20_000)
    for number in range(20):
        fill(sql, f"more{number}-", 100, phase=f"phase{number:02d}", later=3600 if number % 2 else -60)
    if analyzed:
        sql.execute("VACUUM ANALYZE onerow.task_queue")
    asked = {("videos", "script"), *(("videos", f"phase{number:02d}") for number in range(20))}
    with explained(store) as plans:
        for _ in range(7):  # enough for PostgreSQL to switch to a generic plan
            found = store.ready(asked, store.now())
    assert sorted(found) == sorted(phase for phase in asked if phase[1] == "script" or int(phase[1][-2:]) % 2 == 0)
    must_use_indexes(plans, at_most=100)


def test_tasks_without_a_key_are_found_behind_any_number_of_full_keys(
    store: PostgresStore, sql: psycopg.Connection
) -> None:
    fill(sql, "keyed", 40_000, phase="keyed")
    sql.execute("UPDATE onerow.task_queue SET limit_key = 'k' || right(task_id, 1)")
    fill(sql, "free", 5, phase="keyed")
    assert len(claim(store, 10, phase="keyed", key_slots=1)) == 10
    with explained(store) as plans:
        assert claimed_ids(store, 5, phase="keyed", key_slots=1) == [f"free{n}" for n in range(1, 6)]
    must_use_indexes(plans, at_most=300)


def test_a_claim_scans_a_few_hundred_keys_at_most(store: PostgresStore, sql: psycopg.Connection) -> None:
    fill(sql, "full", 5_000, phase="keyed", priority=-1)
    fill(sql, "keyed", 40_000, phase="keyed")
    sql.execute("UPDATE onerow.task_queue SET limit_key = CASE WHEN priority < 0 THEN 'full' ELSE task_id END")
    assert len(claim(store, 1, phase="keyed", key_slots=1)) == 1
    for analyzed in (False, True):
        if analyzed:
            sql.execute("VACUUM ANALYZE onerow.task_queue")
        with explained(store) as plans:
            for _ in range(3):
                assert len(claim(store, 10, phase="keyed", key_slots=1)) == 10
        must_use_indexes(plans, at_most=1_300)


def test_a_claim_skips_dead_row_versions(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old snapshot keeps vacuum from removing dead versions; a low-water mark skips them."""
    put_many(store, 4_000)
    with psycopg.connect(postgres_url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM onerow.task_queue")
        moves: list[Move] = []
        for _ in range(30):
            _, tasks = store.settle_and_claim(moves, Claim("w1", [want(100)]))
            moves = [Move(task, rules.finish(task, None, store.now())) for task in tasks]
        walked = {}
        for lasts_for in (60.0, 0.0):
            monkeypatch.setattr(low_water, "LASTS_FOR", lasts_for)
            with explained(store) as plans:
                assert len(claim(store, 100)) == 100
            (plan,) = of_table(plans)
            lines = iter(plan.splitlines())
            next(line for line in lines if "Index Scan using task_ready on task_queue s" in line)
            buffers = re.search(r"shared hit=(\d+)", next(line for line in lines if "Buffers" in line))
            assert buffers is not None
            walked[lasts_for] = int(buffers[1])
    assert walked[60.0] * 3 < walked[0.0]


def test_the_statement_of_a_plain_claim_is_parsed_once_by_psycopg() -> None:
    """psycopg caches parsed statements of up to 4,096 characters; parsing a longer one costs more than building it."""
    assert len(_claim_sql("claim", "onerow", last=False)) <= 4096
