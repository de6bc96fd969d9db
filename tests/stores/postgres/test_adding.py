"""Inserts: the fast paths for tasks that cannot conflict, and the fallback when an id is taken."""

from datetime import timedelta

import psycopg
import pytest

from onerow.core.errors import RowRefused
from onerow.core.task import Task
from onerow.ports import Existing, Inserted
from onerow.stores.postgres import PostgresStore
from onerow.stores.postgres.fast import insert_new
from tests.conformance.kit import claim, every_row, new, put, put_many, same

SIZES = [1, 5, 100, insert_new.CHUNK + 100]


def batch(store: PostgresStore, count: int) -> list[Task]:
    return [new(store, f"t{n:05d}") for n in range(count)]


@pytest.mark.parametrize("size", SIZES)
def test_a_batch_of_any_size_is_stored_unchanged(store: PostgresStore, size: int) -> None:
    """With optional fields set in some tasks, in all tasks, in none."""
    now = store.now()
    tasks = [
        new(
            store,
            f"t{n:05d}",
            user_id="ann",
            title="" if n % 2 else "a title, 제목",
            parent_id=None if n % 3 else "t0",
            priority=n % 7 - 3,
            scheduled_time=now + timedelta(hours=1) if n % 5 == 0 else None,
            max_retries=7,
            own_retries=n % 2 == 0,
            limit_key="k" if n % 4 == 0 else "",
            payload_json="null" if n % 6 else '{"n":1}',
            metadata_json='{"by":"me"}',
        )
        for n in range(size)
    ]
    assert all(isinstance(answer, Inserted) for answer in store.insert(tasks))
    rows = every_row(store)
    assert len(rows) == size
    assert all(same(rows[task.task_id], task) for task in tasks)


@pytest.mark.parametrize("size", SIZES)
def test_if_an_id_is_taken_the_other_tasks_are_inserted_and_the_existing_one_is_returned(
    store: PostgresStore, size: int
) -> None:
    tasks = batch(store, size)
    owner = put(store, tasks[-1].task_id, title="was here first")
    answers = store.insert(tasks)
    assert all(isinstance(answer, Inserted) for answer in answers[:-1])
    assert isinstance(answers[-1], Existing)
    assert answers[-1].task.title == owner.title
    assert set(every_row(store)) == {task.task_id for task in tasks}


@pytest.mark.parametrize("size", [1, 100])
def test_adding_is_one_statement(store: PostgresStore, size: int) -> None:
    seen = store.count_statements()
    tasks = batch(store, size)
    before = seen()  # reading the clock is one statement
    store.insert(tasks)
    assert seen() - before == 1


def test_inserts_work_beyond_the_maximum_number_of_prepared_statements(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert_new, "_MAX_PREPARED", 1)
    for number, given in enumerate(({}, {"title": "one"}, {"user_id": "ann"}, {"title": "two"})):
        put(store, f"t{number}", **given)
    assert [row.title for row in every_row(store).values()] == ["", "one", "", "two"]


def test_tasks_can_be_added_after_a_transaction_on_the_same_connection_failed(postgres_url: str) -> None:
    """After a rollback, psycopg deallocates all prepared statements, also the one that inserts."""
    store = PostgresStore(postgres_url, pool_size=1)
    store.prepare()
    put(store, "t1")
    claim(store)
    claim(store)
    pool = store._connections
    with pytest.raises(RowRefused), pool.connection() as connection, pool.transaction(connection):
        connection.execute("SELECT 1 / 0")
    put(store, "t2")
    put(store, "t3")
    assert set(every_row(store)) == {"t1", "t2", "t3"}
    store.close()


@pytest.mark.parametrize("size", [1, 100])
def test_an_insert_sends_one_notification(store: PostgresStore, sql: psycopg.Connection, size: int) -> None:
    sql.execute('LISTEN "onerow.onerow"')
    put_many(store, size)
    assert len(list(sql.notifies(timeout=5, stop_after=1))) == 1
    assert list(sql.notifies(timeout=0)) == []
