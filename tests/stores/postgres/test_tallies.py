"""Counts of ended tasks: right after every act, added up now and then, and put right when somebody meddled."""

import threading

import psycopg

from onerow.core import rules
from onerow.ports import Filter, Move
from onerow.stores.postgres import PostgresStore
from tests.conformance.kit import HOUR, claim, put_many


def counted(store: PostgresStore) -> dict[tuple[object, ...], int]:
    return {(t.pipeline, t.phase, t.status, t.parked): t.count for t in store.count(Filter())}


def told(store: PostgresStore) -> dict[tuple[object, ...], int]:
    return {(t.pipeline, t.phase, t.status, t.parked): t.count for t in store.store_counts().tallies}


def lines(sql: psycopg.Connection) -> int:
    row = sql.execute("SELECT count(*) FROM onerow.onerow_tally").fetchone()
    assert row is not None
    return int(row[0])


def test_a_turn_adds_one_line_however_many_tasks_it_ends(store: PostgresStore, sql: psycopg.Connection) -> None:
    put_many(store, 50)
    for _ in range(5):
        held = claim(store, 10)
        now = store.now() + HOUR  # one moment that isn't the claim's, so that all of them change the same columns
        store.swap([Move(task, rules.complete(task, None, now)) for task in held])
    assert lines(sql) == 5
    assert told(store) == counted(store)


def test_lines_are_added_up_while_others_write(store: PostgresStore, sql: psycopg.Connection) -> None:
    put_many(store, 400)

    def work() -> None:
        while tasks := claim(store, 5):
            store.swap([Move(task, rules.complete(task, None, store.now())) for task in tasks])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        store._bookkeeper.add_up()
    store._bookkeeper.add_up()
    assert lines(sql) == 1
    assert told(store) == counted(store)
    assert store._bookkeeper.is_right()


def test_what_someone_did_by_hand_is_found_and_put_right(store: PostgresStore, sql: psycopg.Connection) -> None:
    put_many(store, 3)
    sql.execute("UPDATE onerow.task_queue SET status = 'completed', completed_at = now() WHERE task_id = 't0001'")
    assert [finding.fix for finding in store.inspect() if finding.level == "slow"] == ["onerow doctor --repair"]
    store.repair()
    assert told(store) == counted(store)
    assert [finding for finding in store.inspect() if finding.level != "good"] == []
