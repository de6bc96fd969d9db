"""Adding tasks in the caller's transaction, for every supported kind of connection and session."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from psycopg.rows import dict_row
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_async

from onerow.core.errors import BadInput, RetryTransaction, SchemaMissing
from onerow.engine.queue.queue import Queue
from onerow.pipelines.pipeline import Pipeline
from onerow.stores.postgres import PostgresStore
from tests.servers.postgres import Databases, PostgresServer

posts = Pipeline("posts")
posts.phase(name="tag")(lambda job: None)

Opened = Callable[[str], AbstractContextManager[Any]]
OpenedAsync = Callable[[str], AbstractAsyncContextManager[Any]]


class Undo(Exception):
    """Raised by a test inside a transaction to roll it back."""


@pytest.fixture
def queue(store: PostgresStore) -> Queue:
    return Queue(store)


def ids(queue: Queue) -> set[str]:
    return {task.task_id for task in queue.find().tasks}


# ── sync connections and sessions ─────────────────────────────────────────────────────────────────────────────────


@contextmanager
def by_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def by_psycopg_with_other_factories(url: str) -> Iterator[Any]:
    """With rows as dictionaries, and cursors that bind parameters on the client."""
    with (
        psycopg.connect(url, autocommit=True, row_factory=dict_row, cursor_factory=psycopg.ClientCursor) as connection,
        connection.transaction(),
    ):
        yield connection


@contextmanager
def by_session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(
        url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sqlalchemy.NullPool
    )
    with orm.Session(engine) as session, session.begin():
        yield session


@contextmanager
def by_sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(
        url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sqlalchemy.NullPool
    )
    with engine.begin() as connection:
        yield connection


@contextmanager
def by_django(url: str) -> Iterator[Any]:
    with django_at(url) as connection:
        from django.db import transaction

        with transaction.atomic():
            yield connection


@contextmanager
def by_django_alias(url: str) -> Iterator[Any]:
    with by_django(url) as connection:
        yield connection.alias


@contextmanager
def django_at(url: str) -> Iterator[Any]:
    """Point Django's default connection to the database at `url`."""
    parts = urlsplit(url)
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, USE_TZ=True)
        django.setup()
    from django.db import connections

    connection = connections["default"]
    connection.settings_dict |= {
        "NAME": parts.path[1:],
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    try:
        yield connection
    finally:
        connection.close()


SYNC: list[Opened] = [
    by_psycopg,
    by_psycopg_with_other_factories,
    by_session,
    by_sqlalchemy_connection,
    by_django,
    by_django_alias,
]


@pytest.fixture(params=SYNC, ids=lambda opened: opened.__name__)
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.param
    return found


def test_the_task_appears_when_the_caller_commits(queue: Queue, postgres_url: str, opened: Opened) -> None:
    with opened(postgres_url) as tx:
        task = queue.add(posts, {"title": "조수"}, tx=tx)
        assert ids(queue) == set()
    assert queue.get(task.task_id) == task


def test_a_rollback_leaves_no_task(queue: Queue, postgres_url: str, opened: Opened) -> None:
    def add_and_undo() -> None:
        with opened(postgres_url) as tx:
            queue.add(posts, {"n": 1}, tx=tx)
            queue.add_many(posts, [{"n": n} for n in range(20)], tx=tx)
            raise Undo

    with pytest.raises(Undo):
        add_and_undo()
    assert ids(queue) == set()


def test_taken_keys_and_ids_return_the_existing_task(queue: Queue, postgres_url: str, opened: Opened) -> None:
    known = queue.add(posts, {"n": [1.0, 5e-324, "é\u2028"]}, unique="k", title="it's 100 % here", metadata={"a": None})
    with opened(postgres_url) as tx:
        assert queue.add(posts, {"n": 2}, unique="k", tx=tx) == known
        assert queue.add(posts, {"n": 3}, task_id=known.task_id, tx=tx) == known
        first = queue.add(posts, {"n": 4}, unique="j", tx=tx)
        assert queue.add(posts, {"n": 5}, unique="j", tx=tx).task_id == first.task_id
    assert ids(queue) == {known.task_id, first.task_id}
    assert queue.get(known.task_id) == known


def test_all_fields_are_stored_unchanged(queue: Queue, postgres_url: str, opened: Opened) -> None:
    payload = {"z": 1, "a": [-0.0, 1e308, 2**63 - 1, "\\", '"', "%s :x $1", "\n", "조수 🌊", None, True]}
    with opened(postgres_url) as tx:
        task = queue.add(
            posts, payload, tx=tx, user_id="it's", limit_key=":k", run_at="2030-01-01T00:00:00+09:00", priority=-3,
            metadata={"b": {}}, max_retries=0,
        )  # fmt: skip
    assert queue.get(task.task_id) == task
    assert list(queue.get(task.task_id).payload) == ["z", "a"]


def test_a_null_payload_is_stored(queue: Queue, postgres_url: str, opened: Opened) -> None:
    with opened(postgres_url) as tx:
        task = queue.add(posts, None, tx=tx)
        again = queue.add_many(posts, [None, {"n": None}], tx=tx)
    assert queue.get(task.task_id) == task
    assert [queue.get(each.task_id).payload for each in again] == [None, {"n": None}]


def test_a_worker_is_woken_by_the_commit_and_not_before(
    queue: Queue, store: PostgresStore, postgres_url: str, opened: Opened
) -> None:
    waker = store.waker()
    with opened(postgres_url) as tx:
        queue.add(posts, {"n": 1}, tx=tx)
        assert not waker.wait(0.05)
    assert waker.wait(900)
    waker.close()


# ── async connections and sessions ────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def by_async_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(url: str) -> AsyncIterator[Any]:
    pool = asyncpg.create_pool(url, min_size=1, max_size=1)
    async with pool, pool.acquire() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def by_async_session(url: str, driver: str = "psycopg") -> AsyncIterator[Any]:
    async with (
        _async_engine(url, driver) as engine,
        sqlalchemy_async.AsyncSession(engine) as session,
        session.begin(),
    ):
        yield session


def by_async_session_on_asyncpg(url: str) -> AbstractAsyncContextManager[Any]:
    return by_async_session(url, "asyncpg")


@asynccontextmanager
async def by_async_sqlalchemy_connection(url: str) -> AsyncIterator[Any]:
    async with _async_engine(url, "asyncpg") as engine, engine.begin() as connection:
        yield connection


@asynccontextmanager
async def by_sync_session(url: str) -> AsyncIterator[Any]:
    with by_session(url) as session:
        yield session


@asynccontextmanager
async def _async_engine(url: str, driver: str) -> AsyncIterator[sqlalchemy_async.AsyncEngine]:
    engine = sqlalchemy_async.create_async_engine(url.replace("postgresql://", f"postgresql+{driver}://"))
    try:
        yield engine
    finally:
        await engine.dispose()


ASYNC: list[OpenedAsync] = [
    by_async_psycopg,
    by_asyncpg,
    by_asyncpg_pool,
    by_async_session,
    by_async_session_on_asyncpg,
    by_async_sqlalchemy_connection,
    by_sync_session,
]


@pytest.fixture(params=ASYNC, ids=lambda opened: opened.__name__)
def opened_async(request: pytest.FixtureRequest) -> OpenedAsync:
    found: OpenedAsync = request.param
    return found


def test_async_the_task_appears_when_the_caller_commits(
    queue: Queue, postgres_url: str, opened_async: OpenedAsync
) -> None:
    async def main() -> None:
        async with opened_async(postgres_url) as tx:
            task = await queue.add_async(posts, {"title": "조수", "n": 1.0}, tx=tx, unique="k")
            assert (await queue.add_async(posts, {"n": 2}, tx=tx, unique="k")).task_id == task.task_id
            many = await queue.add_many_async(posts, [{"n": n} for n in range(20)], tx=tx)
            assert ids(queue) == set()
        assert queue.get(task.task_id) == task
        assert ids(queue) == {task.task_id, *(each.task_id for each in many)}

    asyncio.run(main())


def test_async_a_rollback_leaves_no_task(queue: Queue, postgres_url: str, opened_async: OpenedAsync) -> None:
    async def main() -> None:
        async with opened_async(postgres_url) as tx:
            await queue.add_async(posts, {"n": 1}, tx=tx)
            raise Undo

    with pytest.raises(Undo):
        asyncio.run(main())
    assert ids(queue) == set()


# ── refused transactions ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_connection_without_a_transaction_is_refused(queue: Queue, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as tx, pytest.raises(BadInput, match="no transaction is open"):
        queue.add(posts, {}, tx=tx)
    with django_at(postgres_url), pytest.raises(BadInput, match="no transaction is open"):
        queue.add(posts, {}, tx="default")

    async def main() -> None:
        connection = await asyncpg.connect(postgres_url)
        with pytest.raises(BadInput, match="no transaction is open"):
            await queue.add_async(posts, {}, tx=connection)
        await connection.close()

    asyncio.run(main())
    assert ids(queue) == set()


def test_an_async_connection_in_a_sync_call_is_refused(queue: Queue, postgres_url: str) -> None:
    async def main() -> None:
        async with by_async_psycopg(postgres_url) as tx:
            with pytest.raises(BadInput, match=r"await queue\.add_async"):
                queue.add(posts, {}, tx=tx)
        async with by_async_session(postgres_url) as tx:
            with pytest.raises(BadInput, match=r"await queue\.add_async"):
                queue.add(posts, {}, tx=tx)

    asyncio.run(main())


def test_an_unknown_object_is_refused(queue: Queue) -> None:
    with pytest.raises(BadInput, match="object is not a transaction"):
        queue.add(posts, {}, tx=object())


@pytest.fixture
def other_url(postgres_server: Databases) -> Iterator[str]:
    """Another database of the same server, with onerow's tables."""
    url = postgres_server.fresh_database()
    other = PostgresStore(url)
    other.prepare()
    other.close()
    yield url
    postgres_server.drop_database(url)


def test_a_database_with_its_own_tables_is_refused(queue: Queue, other_url: str, opened: Opened) -> None:
    with opened(other_url) as tx:
        with pytest.raises(BadInput, match="another database") as refused:
            queue.add(posts, {}, tx=tx)
        assert refused.value.field == "tx"
    assert count_tasks(other_url) == 0
    assert ids(queue) == set()


def test_async_a_database_with_its_own_tables_is_refused(
    queue: Queue, other_url: str, opened_async: OpenedAsync
) -> None:
    async def main() -> None:
        async with opened_async(other_url) as tx:
            with pytest.raises(BadInput, match="another database"):
                await queue.add_async(posts, {}, tx=tx)

    asyncio.run(main())
    assert count_tasks(other_url) == 0
    assert ids(queue) == set()


def test_a_database_without_tables_is_refused(queue: Queue, postgres_url: str, opened: Opened) -> None:
    elsewhere = urlsplit(postgres_url)._replace(path="/postgres").geturl()
    with opened(elsewhere) as tx, pytest.raises(BadInput, match="another database"):
        queue.add(posts, {}, tx=tx)


def test_a_queue_without_tables_takes_no_transaction_and_creates_none(postgres_url: str, opened: Opened) -> None:
    missing = pytest.raises(SchemaMissing, match="has no onerow tables\nrun: onerow migrate")
    with closing(Queue(PostgresStore(postgres_url))) as queue, opened(postgres_url) as tx, missing:
        queue.add(posts, {}, tx=tx)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT to_regnamespace('onerow')").fetchone() == (None,)


def test_each_connection_is_asked_once_for_its_database(queue: Queue, postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"), pool_size=1)
    sent: list[str] = []
    sqlalchemy.event.listen(engine, "before_cursor_execute", lambda *given: sent.append(given[2]))
    try:
        for _ in range(3):
            with orm.Session(engine) as session, session.begin():
                queue.add(posts, {}, tx=session)
    finally:
        engine.dispose()
    assert [("pg_postmaster_start_time" in sql, "INSERT" in sql) for sql in sent] == [
        (True, False), (False, True), (False, True), (False, True),
    ]  # fmt: skip


def test_a_restarted_server_is_still_the_same_database(own_postgres: PostgresServer) -> None:
    url = own_postgres.fresh_database()
    with closing(Queue(PostgresStore(url))) as queue:
        assert ids(queue) == set()
        for _ in range(2):
            with by_psycopg(url) as tx:
                queue.add(posts, {}, tx=tx)
            own_postgres.stop()
            own_postgres.start()
        assert len(ids(queue)) == 2


def test_a_sqlalchemy_connection_in_autocommit_is_refused(queue: Queue, postgres_url: str) -> None:
    for driver in ("psycopg", "asyncpg"):
        url = postgres_url.replace("postgresql://", f"postgresql+{driver}://")

        async def add(url: str = url) -> None:
            engine = sqlalchemy_async.create_async_engine(url, isolation_level="AUTOCOMMIT")
            async with engine.connect() as tx:
                with pytest.raises(BadInput, match="AUTOCOMMIT"):
                    await queue.add_async(posts, {}, tx=tx)
            async with sqlalchemy_async.AsyncSession(engine) as session:
                with pytest.raises(BadInput, match="AUTOCOMMIT"):
                    await queue.add_async(posts, {}, tx=session)
            await engine.dispose()

        asyncio.run(add())
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    refused = pytest.raises(BadInput, match="AUTOCOMMIT")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as tx, refused:
        queue.add(posts, {}, tx=tx)
    engine.dispose()
    assert ids(queue) == set()


def count_tasks(url: str) -> int:
    with psycopg.connect(url) as connection:
        return len(connection.execute("SELECT task_id FROM onerow.task_queue").fetchall())


# ── serialization failures and deadlocks ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("opened", [by_psycopg, by_session, by_django])
def test_a_serialization_failure_raises_retry_transaction(queue: Queue, postgres_url: str, opened: Opened) -> None:
    """Under REPEATABLE READ, a concurrent task with the same key conflicts and is invisible."""

    def collide() -> None:
        with opened(postgres_url) as tx:
            for sql in ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM onerow.task_queue"):
                if opened is by_django:
                    tx.cursor().execute(sql)
                else:
                    tx.execute(sqlalchemy.text(sql) if opened is by_session else sql)
            queue.add(posts, {"n": 1}, unique="k")
            queue.add(posts, {"n": 2}, unique="k", tx=tx)

    with pytest.raises(RetryTransaction):
        collide()
    assert len(ids(queue)) == 1


def test_a_deadlock_raises_retry_transaction(queue: Queue, postgres_url: str) -> None:
    async def main() -> list[Any]:
        async def add(keys: list[str], ready: asyncio.Event, go: asyncio.Event) -> None:
            async with by_async_psycopg(postgres_url) as tx:
                await queue.add_async(posts, {}, unique=keys[0], tx=tx)
                ready.set()
                await go.wait()
                await queue.add_async(posts, {}, unique=keys[1], tx=tx)

        one, two = asyncio.Event(), asyncio.Event()
        both = add(["a", "b"], one, two), add(["b", "a"], two, one)
        return list(await asyncio.gather(*both, return_exceptions=True))

    assert sorted(type(answer).__name__ for answer in asyncio.run(main())) == ["NoneType", "RetryTransaction"]
    assert len(ids(queue)) == 2
