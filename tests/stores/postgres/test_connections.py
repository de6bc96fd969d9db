"""Connection pool: size, reuse, forks, and translation of errors."""

import os
import pkgutil
import threading
import time

import psycopg
import pytest

from onerow.core import errors
from onerow.core.filters import Filter
from onerow.core.urls import mask_password
from onerow.stores.postgres import PostgresStore
from onerow.stores.postgres.connection_url import parse
from onerow.stores.postgres.driver_errors import store_error
from onerow.stores.postgres.pipelining import PSYCOPG_INTERNALS
from tests.conformance.kit import claim, new, put, put_many, stored
from tests.stores.postgres.proxy import Proxy


def test_a_full_pool_waits_and_then_raises(postgres_url: str, store: PostgresStore) -> None:
    small = PostgresStore(postgres_url, pool_size=2, patience=0.2)
    with small._connections.connection(), small._connections.connection():
        with pytest.raises(errors.StoreUnavailable, match="all 2 connections have been busy"):
            small.fetch(["t1"])
        threading.Thread(target=lambda: time.sleep(0.05)).start()
    assert small.fetch(["t1"]) == []
    small.close()


def test_many_threads_share_few_connections(postgres_url: str, store: PostgresStore, sql: psycopg.Connection) -> None:
    small = PostgresStore(postgres_url, pool_size=3)
    threads = [threading.Thread(target=put, args=(small, f"t{n}")) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(tally.count for tally in small.count(Filter())) == 40
    (row,) = sql.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onerow' AND datname = current_database()"
    ).fetchall()
    assert row[0] <= 3 + 1  # plus one of the fixture
    small.close()


def test_a_connection_that_was_cut_while_idle_is_not_reused(store: PostgresStore, proxy: Proxy) -> None:
    proxied = PostgresStore(proxy.url)
    put(proxied)
    proxy.cut()
    assert [task.task_id for task in claim(proxied)] == ["t1"]
    proxied.close()


def test_a_closed_store_reconnects_when_used(store: PostgresStore) -> None:
    put(store)
    store.close()
    assert stored(store).task_id == "t1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_opens_its_own_connections(store: PostgresStore) -> None:
    put_many(store, 2)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if [task.task_id for task in claim(store, 1)] == ["t0000"] else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert [task.task_id for task in claim(store, 2)] == ["t0001"]


def test_an_unreachable_server_is_reported() -> None:
    nowhere = PostgresStore("postgresql://postgres:secret@127.0.0.1:1/x")
    with pytest.raises(errors.StoreUnavailable, match="refused") as caught:
        nowhere.prepare()
    assert "secret" not in str(caught.value)


def test_a_missing_database_is_reported(postgres_url: str) -> None:
    with pytest.raises(errors.StoreError, match="does not exist"):
        PostgresStore(postgres_url + "_not").prepare()


def test_a_statement_timeout_raises_store_unavailable_and_writes_nothing(
    store: PostgresStore, sql: psycopg.Connection, postgres_url: str
) -> None:
    """A statement waits for a lock longer than statement_timeout: nothing is written, and a retry succeeds."""
    put(store)
    hasty = PostgresStore(f"{postgres_url}?options=-c%20statement_timeout%3D200")
    with psycopg.connect(postgres_url) as holder:
        holder.execute("LOCK TABLE onerow.task_queue")
        with pytest.raises(errors.StoreUnavailable, match="statement timeout"):
            claim(hasty)
        holder.rollback()
    assert [task.task_id for task in claim(hasty)] == ["t1"]
    hasty.close()


def test_large_batches_stay_below_a_statement_timeout(store: PostgresStore, postgres_url: str) -> None:
    hasty = PostgresStore(f"{postgres_url}?options=-c%20statement_timeout%3D5000")
    answers = hasty.insert([new(hasty, f"t{n:05d}") for n in range(12_000)])
    assert len(answers) == 12_000
    hasty.close()


def test_a_read_only_server_is_reported(store: PostgresStore, postgres_url: str) -> None:
    put(store)
    reader = PostgresStore(f"{postgres_url}?options=-c%20default_transaction_read_only%3Don")
    assert stored(reader).task_id == "t1"
    with pytest.raises(errors.StoreReadOnly, match="read-only"):
        reader.insert([new(reader, "t2")])
    reader.close()


def test_the_isolation_level_of_a_role_is_overridden(store: PostgresStore, postgres_url: str) -> None:
    strict = PostgresStore(f"{postgres_url}?options=-c%20default_transaction_isolation%3Dserializable")
    put_many(strict, 20)
    taken: list[str] = []
    threads = [
        threading.Thread(target=lambda: taken.extend(task.task_id for task in claim(strict, 5, slots=20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 20
    strict.close()


@pytest.mark.parametrize(
    "url",
    ["mysql://localhost/x", "postgresql://localhost/x?nonsense=1", "postgresql://[localhost/x"],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(errors.BadStoreUrl):
        PostgresStore(url)


def test_an_option_replica_is_refused_and_the_error_says_what_to_give() -> None:
    with pytest.raises(errors.BadStoreUrl, match="replica") as refused:
        PostgresStore("postgresql://localhost/x?replica=postgresql://ann:s3cret@standby/x")
    assert "give its URL" in str(refused.value.fix)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://ann:s3cret@db/x", "postgresql://ann:***@db/x"),
        ("postgresql://ann:s%40:c@db:5433/x?sslmode=require", "postgresql://ann:***@db:5433/x?sslmode=require"),
        ("postgresql://db/x?password=s3cret", "postgresql://db/x?password=***"),
        ("postgresql://ann@db/x", "postgresql://ann@db/x"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert mask_password(url) == shown
    assert parse(url).masked == shown


@pytest.mark.parametrize(
    "error, becomes",
    [
        (psycopg.errors.DiskFull, errors.StoreFull),
        (psycopg.errors.TooManyConnections, errors.StoreUnavailable),
        (psycopg.errors.AdminShutdown, errors.StoreUnavailable),
        (psycopg.errors.CannotConnectNow, errors.StoreUnavailable),
        (psycopg.errors.ReadOnlySqlTransaction, errors.StoreReadOnly),
        (psycopg.errors.CheckViolation, errors.RowRefused),
    ],
)
def test_driver_errors_become_store_errors(error: type[psycopg.Error], becomes: type[errors.StoreError]) -> None:
    assert type(store_error(error("it said so"), "here")) is becomes


@pytest.mark.parametrize("name", PSYCOPG_INTERNALS)
def test_psycopg_has_the_undocumented_names_that_the_store_uses(name: str) -> None:
    path, _, attribute = name.rpartition(".")
    owner = pkgutil.resolve_name(path)
    declared = {field for kind in getattr(owner, "__mro__", ()) for field in getattr(kind, "__annotations__", {})}
    assert hasattr(owner, attribute) or attribute in declared, (
        f"psycopg {psycopg.__version__} has no {name}: adapt pipelining.py and fast/insert_new.py, or exclude this version"
    )


def test_the_statements_of_a_transaction_are_sent_at_its_end(store: PostgresStore, sql: psycopg.Connection) -> None:
    """Fails if psycopg sends by another function than the one that `one_send` replaces."""
    active = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state <> 'idle'"
    with store._connections.connection() as connection, store._connections.transaction(connection):
        connection.execute("SELECT pg_notify('onerow.test', '')")
        assert sql.execute(active, (connection.info.backend_pid,)).fetchone() == (0,)
