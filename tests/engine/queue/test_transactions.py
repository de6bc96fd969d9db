"""tx=: a task added in the caller's transaction is committed or rolled back with it."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
import pytest
import sqlalchemy
from django.conf import settings
from sqlalchemy.orm import Session

from onerow import BadInput, Pipeline, Queue, RetryTransaction
from onerow.core.errors import SchemaMissing
from onerow.stores.memory import MemoryStore
from onerow.stores.sqlite import connections
from tests.engine.kit import until, work, working

posts = Pipeline("posts")


@posts.phase
def tag(job: object) -> None: ...


@pytest.fixture
def queue(sqlite_queue: Queue) -> Queue:
    assert sqlite_queue.count() == []  # creates the tables before callers open their connections
    return sqlite_queue


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "onerow.db"


@pytest.fixture
def connection(queue: Queue, path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=0.1)) as opened:
        opened.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        opened.commit()
        yield opened


def orders(path: Path) -> int:
    with closing(sqlite3.connect(path)) as looking:
        return int(looking.execute("SELECT count(*) FROM orders").fetchone()[0])


def test_a_task_appears_when_the_caller_commits(queue: Queue, connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("INSERT INTO orders VALUES (1)")
    task = queue.add(posts, {"order": 1}, tx=connection)
    assert queue.count() == []
    connection.commit()
    assert queue.get(task.task_id) == task
    assert orders(path) == 1


def test_a_rollback_leaves_nothing(queue: Queue, connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("INSERT INTO orders VALUES (1)")
    queue.add(posts, {"order": 1}, tx=connection)
    queue.add_many(posts, range(50), tx=connection)
    connection.rollback()
    assert queue.count() == []
    assert orders(path) == 0


def test_add_many_joins_the_transaction_too(queue: Queue, connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        queue.add_many(posts, range(50), tx=connection)
    assert [tally.count for tally in queue.count()] == [50]


def test_an_add_may_be_the_first_statement_of_the_transaction(queue: Queue, connection: sqlite3.Connection) -> None:
    queue.add(posts, tx=connection)
    assert connection.in_transaction
    connection.rollback()
    assert queue.count() == []


def test_add_many_may_be_the_first_statement_of_the_transaction(queue: Queue, connection: sqlite3.Connection) -> None:
    queue.add_many(posts, range(3), tx=connection)
    assert connection.in_transaction
    connection.rollback()
    assert queue.count() == []


def test_a_refused_payload_leaves_the_transaction_unchanged(
    queue: Queue, connection: sqlite3.Connection, path: Path
) -> None:
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(BadInput):
        queue.add(posts, float("nan"), tx=connection)
    connection.commit()
    assert (orders(path), queue.count()) == (1, [])


def test_a_connection_to_another_database_is_refused(queue: Queue, tmp_path: Path) -> None:
    for other in (str(tmp_path / "other.db"), ":memory:"):
        with closing(sqlite3.connect(other)) as connection:
            connection.execute("CREATE TABLE t (n)")
            with pytest.raises(BadInput, match="tx") as refused:
                queue.add(posts, tx=connection)
            assert refused.value.field == "tx"
    assert queue.count() == []


def test_a_connection_in_autocommit_without_a_transaction_is_refused(queue: Queue, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(BadInput, match="BEGIN"):
            queue.add(posts, tx=connection)
        connection.execute("BEGIN IMMEDIATE")
        queue.add(posts, tx=connection)
        connection.execute("COMMIT")
    assert [tally.count for tally in queue.count()] == [1]


def test_a_symbolic_link_leads_to_the_same_database(queue: Queue, path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(path)
    with closing(sqlite3.connect(tmp_path / "link.db")) as connection:
        queue.add(posts, tx=connection)
        connection.commit()
    assert [tally.count for tally in queue.count()] == [1]


def test_a_concurrent_writer_requires_a_retry_of_the_transaction(
    queue: Queue, connection: sqlite3.Connection, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RetryTransaction, match="roll back"):
            queue.add(posts, tx=connection)
        other.execute("ROLLBACK")
    connection.rollback()
    queue.add(posts, tx=connection)
    connection.commit()
    assert [tally.count for tally in queue.count()] == [1]


def test_an_outdated_snapshot_requires_a_retry_of_the_transaction(queue: Queue, connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM orders").fetchone()
    queue.add(posts)  # another connection writes after our first read
    with pytest.raises(RetryTransaction):
        queue.add(posts, tx=connection)
    connection.rollback()
    assert [tally.count for tally in queue.count()] == [1]


def test_a_unique_key_is_looked_up_inside_the_transaction(queue: Queue, connection: sqlite3.Connection) -> None:
    first = queue.add(posts, {"n": 1}, unique="k", tx=connection)
    assert queue.add(posts, {"n": 2}, unique="k", tx=connection) == first
    connection.commit()
    assert [tally.count for tally in queue.count()] == [1]


def test_an_expired_key_can_be_used_inside_a_transaction_after_a_sweep(
    queue: Queue, connection: sqlite3.Connection
) -> None:
    queue.serve(posts)
    first = queue.add(posts, unique="k", unique_for=timedelta(milliseconds=1))
    queue.cancel(first.task_id)
    until(lambda: queue.store.now() > (queue.get(first.task_id).held_until or queue.store.now()))
    connection.execute("INSERT INTO orders VALUES (1)")
    assert queue.add(posts, unique="k", tx=connection).task_id == first.task_id  # does not wait for the lock
    connection.rollback()
    work(queue)
    connection.execute("INSERT INTO orders VALUES (1)")
    second = queue.add(posts, unique="k", tx=connection)
    connection.commit()
    assert second.task_id != first.task_id
    assert queue.get(second.task_id).held_key == "k"


def test_a_sqlalchemy_session_can_be_joined(queue: Queue, path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        with Session(engine) as session:
            session.execute(sqlalchemy.text("CREATE TABLE notes (n INTEGER)"))
            session.execute(sqlalchemy.text("INSERT INTO notes VALUES (1)"))
            queue.add(posts, tx=session)
            session.rollback()
            assert queue.count() == []
            queue.add(posts, tx=session)
            session.commit()
    finally:
        engine.dispose()
    assert [tally.count for tally in queue.count()] == [1]


def test_a_worker_claims_the_task_as_soon_as_it_is_committed(queue: Queue, connection: sqlite3.Connection) -> None:
    with working(queue, posts, interval=30):
        task = queue.add(posts, tx=connection)
        connection.commit()
        until(lambda: queue.get(task.task_id).ended)


def test_the_memory_store_has_no_transactions_to_join(connection: sqlite3.Connection) -> None:
    with pytest.raises(BadInput, match="tx"):
        Queue(MemoryStore()).add(posts, tx=connection)


# ── a database without tables ──


def test_a_transaction_on_a_file_without_tables_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating the tables would wait for the caller's own transaction."""
    monkeypatch.setattr(connections, "_LOCK_TIMEOUT", 3600.0)
    path = tmp_path / "app.db"
    queue = Queue(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1)")
        for add in (queue.add, queue.add_new):
            with pytest.raises(SchemaMissing, match=r"app\.db has no onerow tables\nrun: onerow migrate"):
                add(posts, tx=connection)
        with pytest.raises(SchemaMissing, match="run: onerow migrate"):
            queue.add_many(posts, [1, 2], tx=connection)
        with pytest.raises(SchemaMissing, match="run: onerow migrate"):
            asyncio.run(queue.add_async(posts, tx=connection))
        connection.commit()
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("orders",)]
    assert orders(path) == 1


def test_a_queue_whose_file_does_not_exist_takes_no_transaction_and_creates_no_file(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/none.db")
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(SchemaMissing, match="onerow migrate"):
        queue.add(posts, tx=connection)
    assert list(tmp_path.iterdir()) == []


def test_a_transaction_on_a_restored_backup_is_refused_at_once(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup is not in WAL mode; the switch would wait for the caller's own transaction."""
    monkeypatch.setattr(connections, "_LOCK_TIMEOUT", 3600.0)
    copy = tmp_path / "copy.db"
    queue.store.backup(copy, lambda part: None)  # type: ignore[attr-defined]
    restored = Queue(f"sqlite:///{copy}")
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(SchemaMissing, match="run: onerow migrate"):
            restored.add(posts, tx=connection)
        connection.rollback()
    restored.store.prepare()
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        restored.add(posts, tx=connection)
        connection.commit()
    assert [tally.count for tally in restored.count()] == [1]
    restored.close()


def test_the_first_use_of_a_queue_may_be_in_a_transaction(queue: Queue, connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO orders VALUES (1)")
    with closing(Queue(queue.url)) as other:
        other.add(posts, tx=connection)
        connection.commit()
    assert [tally.count for tally in queue.count()] == [1]


# ── SQLAlchemy and Django ──


def test_a_sqlalchemy_connection_in_autocommit_is_refused(queue: Queue, path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as tx, pytest.raises(BadInput, match="no transaction is open"):
            queue.add(posts, tx=tx)
    finally:
        engine.dispose()
    assert queue.count() == []


@pytest.fixture
def django_connection(queue: Queue, path: Path) -> Iterator[Any]:
    """A Django connection with the alias `sqlite_queue` to the queue's file."""
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, USE_TZ=True)
        django.setup()
    from django.db import connections as aliases

    aliases.settings["sqlite_queue"] = aliases.configure_settings(
        {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}}
    )["default"]
    yield aliases["sqlite_queue"]
    aliases["sqlite_queue"].close()
    del aliases["sqlite_queue"], aliases.settings["sqlite_queue"]


@pytest.mark.parametrize("by_alias", [False, True], ids=["connection", "alias"])
def test_a_django_transaction_can_be_joined(queue: Queue, django_connection: Any, by_alias: bool) -> None:
    from django.db import transaction

    tx = django_connection.alias if by_alias else django_connection
    with transaction.atomic(using="sqlite_queue"):
        task = queue.add(posts, {"n": 1}, tx=tx)
        queue.add_many(posts, range(3), tx=tx)
        assert queue.count() == []
    assert queue.get(task.task_id) == task
    assert [tally.count for tally in queue.count()] == [4]

    def add_and_undo() -> None:
        with transaction.atomic(using="sqlite_queue"):
            queue.add(posts, {"n": 2}, tx=tx)
            raise RuntimeError("undo")

    with pytest.raises(RuntimeError, match="undo"):
        add_and_undo()
    assert [tally.count for tally in queue.count()] == [4]


def test_a_django_connection_without_a_transaction_is_refused(queue: Queue, django_connection: Any) -> None:
    for tx in (django_connection, "sqlite_queue"):
        with pytest.raises(BadInput, match=r"transaction\.atomic"):
            queue.add(posts, tx=tx)
    with pytest.raises(BadInput, match="not an alias"):
        queue.add(posts, tx="nowhere")
    assert queue.count() == []
