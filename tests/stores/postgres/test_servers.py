"""Unusual databases and servers: encodings, schema names, standbys, malformed URLs."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner

from onerow import Pipeline, Queue, Worker
from onerow.cli.main import main
from onerow.core.errors import BadStoreUrl, StoreError, StoreFull, StoreReadOnly
from onerow.engine.queue.queue import Queue as EngineQueue
from onerow.stores.postgres import PostgresStore
from onerow.wiring import open_store
from tests.conformance.kit import put, stored
from tests.engine.kit import until
from tests.runner.seeded import new_name, seeded
from tests.servers.postgres import Databases, PostgresServer

notes = Pipeline("notes")


@notes.phase
def read(payload: str) -> str:
    return payload


def encoded(server: Databases, encoding: str) -> str:
    name = new_name(f"onerow_{encoding.lower()}_")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    return urlsplit(server.url)._replace(path=f"/{name}").geturl()


def test_any_text_works_in_an_sql_ascii_database(postgres_server: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    queue = Queue(encoded(postgres_server, "SQL_ASCII"))
    task = queue.add(notes, "조수 🌊", title="달 …")
    Worker(queue, [notes], until_idle=True).run()
    assert queue.get(task.task_id).results == {"read": "조수 🌊"}
    assert queue.get(task.task_id).title == "달 …"
    queue.close()


def test_pgclientencoding_is_ignored(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    store = PostgresStore(postgres_url)
    store.prepare()
    put(store, title="조수")
    assert stored(store).title == "조수"
    store.close()


def test_a_database_that_cannot_hold_every_text_is_refused_before_anything_is_created(
    postgres_server: Databases,
) -> None:
    store = PostgresStore(encoded(postgres_server, "LATIN1"))
    with pytest.raises(StoreError, match=r"(?s)encoding LATIN1.*ENCODING 'UTF8'"):
        store.prepare()
    assert "the database's encoding is LATIN1" in " ".join(finding.what for finding in store.inspect())
    store.close()


@pytest.mark.parametrize("schema", ["MyApp", "select", "_x"])
def test_a_schema_name_may_have_capital_letters_or_be_a_keyword(postgres_url: str, schema: str) -> None:
    store = PostgresStore(f"{postgres_url}?schema={schema}")
    store.prepare()
    assert [finding.what for finding in store.inspect() if finding.level != "good"] == []
    queue = EngineQueue(store)
    queue.publish(notes)
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute(f"""SELECT "{schema}".add('notes', '"by sql"')""").fetchone()
    assert row is not None
    Worker(queue, until_idle=True).run()
    assert queue.get(row[0]).results == {"read": "by sql"}
    store.close()


def test_a_waker_works_in_a_schema_with_capital_letters(postgres_url: str) -> None:
    store = PostgresStore(f"{postgres_url}?schema=MyApp")
    store.prepare()
    waker = store.waker()
    put(store)
    assert waker.wait(900)
    waker.close()
    store.close()


@pytest.fixture
def standby(own_postgres: PostgresServer) -> Iterator[PostgresServer]:
    server = PostgresServer(replica_of=own_postgres)
    yield server
    server.close()


@pytest.mark.faults
def test_a_standby_as_the_store_is_reported(own_postgres: PostgresServer, standby: PostgresServer) -> None:
    primary = PostgresStore(own_postgres.url)
    primary.prepare()
    put(primary)
    url = standby.url
    store = PostgresStore(url)
    until(lambda: _has_task(store), "the task on the standby")
    for words in (
        ["counts"],
        ["list"],
        ["show", "t1"],
        ["why", "t1"],
        ["logs", "t1"],
        ["failures"],
        ["workers"],
        ["stats"],
    ):
        read = CliRunner().invoke(main, [*words, "--store", url])
        assert read.exit_code == 0, f"{words}: {read.output}"
    assert "standby" in " ".join(finding.what for finding in store.inspect() if finding.level == "bad")
    with pytest.raises(StoreReadOnly, match="connect to the primary"):
        EngineQueue(store).cancel("t1")
    empty = PostgresStore(f"{url}?schema=elsewhere")
    with pytest.raises(StoreReadOnly, match="is a standby"):
        empty.prepare()
    for each in (primary, store, empty):
        each.close()


def _has_task(store: PostgresStore) -> bool:
    try:
        return bool(store.fetch(["t1"]))
    except StoreError:  # the database is not replicated yet
        return False


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mongo"])
def test_a_newer_schema_is_reported_as_newer(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    store = open_store(url)
    store.prepare()
    store.close()
    for min_code, level, code in ((2, "slow", 0), (3, "bad", 1)):
        _record_schema(kind, url, 3, min_code)
        doctor = CliRunner().invoke(main, ["doctor", "--store", url])
        assert (doctor.exit_code, "schema 3" in doctor.stdout, "pip install -U onerow" in doctor.stdout) == (
            code,
            True,
            True,
        )
        assert ("✗" in doctor.stdout) == (level == "bad")
        check = CliRunner().invoke(main, ["migrate", "--check", "--store", url])
        assert (check.exit_code, "schema 3" in check.stdout) == (code, True)


def _record_schema(kind: str, url: str, schema: int, min_code: int) -> None:
    if kind == "sqlite":
        import sqlite3

        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO onerow_meta VALUES (?, ?)", [("schema", schema), ("min_code", min_code)]
            )
        connection.close()
    elif kind == "postgres":
        with psycopg.connect(url) as sql:
            sql.execute(
                "UPDATE onerow.onerow_meta SET value = CASE key WHEN 'schema' THEN %s ELSE %s END", (schema, min_code)
            )
    else:
        import pymongo

        with pymongo.MongoClient[dict[str, object]](url) as client:
            meta = next(name for name in client.get_default_database().list_collection_names() if "meta" in name)
            for key, value in (("schema", schema), ("min_code", min_code)):
                client.get_default_database()[meta].update_one({"_id": key}, {"$set": {"value": value}})


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cr3tpw@[::1/x",
        "postgresql://ann:s3cr3t/pw@db/x",
        "postgresql://ann:s3cr3tpw@db:port/x",
        "postgresql://ann:s3@cr3tpw@db/x?nonsense=1",
        "mongodb://ann:s3cr3t/pw@db/x",
        "mongodb://ann:s3cr3tpw@db:port/x",
        "mysql://ann:s3cr3tpw@db/x",
        "postgresql//ann:s3cr3tpw@db/x",
    ],
)
def test_a_malformed_url_never_prints_the_password(url: str) -> None:
    with pytest.raises(BadStoreUrl) as raised:
        open_store(url)
    assert "cr3t" not in str(raised.value)
    printed = CliRunner().invoke(main, ["list", "--store", url])
    assert printed.exit_code == 64
    assert "cr3t" not in printed.output


@pytest.mark.parametrize("size", ["abc", "0", "-1", "1e3", "99999"])
def test_a_pool_size_that_is_not_a_number_of_connections_is_refused(postgres_url: str, size: str) -> None:
    with pytest.raises(BadStoreUrl, match="pool_size must be a whole number from 1 to 1,000"):
        PostgresStore(f"{postgres_url}?pool_size={size}")


def test_a_key_that_is_too_long_for_an_index_is_not_reported_as_a_full_disk(store: PostgresStore) -> None:
    queue = EngineQueue(store)
    queue.publish(notes)
    dice = seeded("a key that cannot be compressed")
    long = "".join(chr(0x10000 + dice.randrange(0xFFFFF)) for _ in range(500))
    with pytest.raises(StoreError, match="shorten the key") as raised:
        queue.add(notes, "x", unique=long, user_id=long[:200])
    assert not isinstance(raised.value, StoreFull)


def test_a_read_is_retried_if_the_server_ends_its_connection(store: PostgresStore, sql: psycopg.Connection) -> None:
    put(store)
    seen: list[int] = []

    def work(connection: psycopg.Connection) -> int:
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        seen.append(pid)
        if len(seen) == 1:
            sql.execute("SELECT pg_terminate_backend(%s)", (pid,))
        (count,) = connection.execute("SELECT count(*) FROM onerow.task_queue, pg_sleep(0.2)").fetchone() or (0,)
        return int(count)

    assert store._connections.read(work) == 1
    assert len(seen) == 2
