"""Counters of ended tasks: correct after every operation, merged from time to time, repairable."""

import threading

import psycopg

from onerow.core import rules
from onerow.core.filters import Filter
from onerow.ports import Move
from onerow.stores.postgres import PostgresStore
from tests.conformance.kit import HOUR, claim, put_many


def from_table(store: PostgresStore) -> dict[tuple[object, ...], int]:
    return {(t.pipeline, t.phase, t.status, t.parked): t.count for t in store.count(Filter())}


def from_counters(store: PostgresStore) -> dict[tuple[object, ...], int]:
    return {(t.pipeline, t.phase, t.status, t.parked): t.count for t in store.store_counts().counts}


def counter_rows(sql: psycopg.Connection) -> int:
    row = sql.execute("SELECT count(*) FROM onerow.onerow_tally").fetchone()
    assert row is not None
    return int(row[0])


def test_a_round_inserts_one_counter_row_for_any_number_of_ended_tasks(
    store: PostgresStore, sql: psycopg.Connection
) -> None:
    put_many(store, 50)
    for _ in range(5):
        held = claim(store, 10)
        now = store.now() + HOUR  # not the time of the claim, so that all moves change the same columns
        store.swap([Move(task, rules.finish(task, None, now)) for task in held])
    assert counter_rows(sql) == 5
    assert from_counters(store) == from_table(store)


def test_counter_rows_are_merged_while_workers_write(store: PostgresStore, sql: psycopg.Connection) -> None:
    put_many(store, 400)

    def work() -> None:
        while tasks := claim(store, 5):
            store.swap([Move(task, rules.finish(task, None, store.now())) for task in tasks])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        store._counter_updater.compact()
    store._counter_updater.compact()
    assert counter_rows(sql) == 1
    assert from_counters(store) == from_table(store)
    assert store._counter_updater.is_correct()


def test_counters_that_a_manual_update_made_wrong_are_found_and_repaired(
    store: PostgresStore, sql: psycopg.Connection
) -> None:
    put_many(store, 3)
    sql.execute("UPDATE onerow.task_queue SET status = 'completed', completed_at = now() WHERE task_id = 't0001'")
    assert [finding.fix for finding in store.inspect() if finding.level == "slow"] == ["onerow doctor --repair"]
    store.repair()
    assert from_counters(store) == from_table(store)
    assert [finding for finding in store.inspect() if finding.level != "good"] == []
