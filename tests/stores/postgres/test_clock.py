"""The store uses the server's clock, and reading it needs no round trip."""

from datetime import timedelta

import psycopg

from onerow.core import rules
from onerow.core.times import to_millis
from onerow.stores.postgres import PostgresStore
from tests.conformance.kit import MINUTE, claim_one, put, stored, swap


def test_now_is_the_server_s_time(store: PostgresStore, sql: psycopg.Connection) -> None:
    before = store.now()
    row = sql.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    assert before <= row[0]
    assert row[0] - before < MINUTE


def test_a_claim_starts_and_a_lease_ends_by_the_server_s_clock(store: PostgresStore, sql: psycopg.Connection) -> None:
    put(store)
    before = sql.execute("SELECT clock_timestamp()").fetchone()
    held = claim_one(store)
    after = sql.execute("SELECT clock_timestamp()").fetchone()
    assert before is not None
    assert after is not None
    assert held.started_at is not None
    assert to_millis(before[0]) <= held.started_at <= after[0]
    assert held.leased_until == held.started_at + MINUTE
    assert stored(store) == held
    done = swap(store, held, rules.finish(held, None, store.now()))
    assert stored(store) == done


def test_time_columns_default_to_the_server_s_time_in_milliseconds(
    store: PostgresStore, sql: psycopg.Connection
) -> None:
    sql.execute("INSERT INTO onerow.task_queue (task_id, type) VALUES ('raw', 'script')")
    task = stored(store, "raw")
    assert task.created_at.microsecond % 1000 == 0
    assert task.created_at <= store.now() + timedelta(milliseconds=1)
