"""Migrations: each runs once, automatically or by hand."""

import threading

import psycopg
import pytest

from onerow.core.errors import BadInput, CodeTooOld, SchemaMissing, StoreReadOnly
from onerow.core.status import Status
from onerow.core.task import COLUMN, DEFAULTS, FIELDS
from onerow.stores.postgres import PostgresStore, schema
from onerow.stores.postgres.rows import KINDS, SQL_TYPE
from tests.conformance.kit import claim_one, put, stored
from tests.runner.seeded import new_name


def test_the_error_for_missing_tables_names_the_command(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    with pytest.raises(SchemaMissing, match="onerow migrate"):
        store.check()
    with pytest.raises(SchemaMissing, match="onerow migrate"):
        store.fetch(["x"])
    store.prepare()
    store.check()
    store.close()


def test_the_printed_sql_is_the_migration(postgres_url: str, sql: psycopg.Connection) -> None:
    store = PostgresStore(postgres_url)
    printed = store.migration()
    assert (printed.stored, printed.known) == (0, schema.SCHEMA)
    sql.execute(printed.sql)
    store.check()
    assert store.migration().sql == ""
    put(store)
    store.close()


def test_migration_files_are_numbered_without_gaps(store: PostgresStore) -> None:
    assert schema.known_files() == [f"schema_{number}.sql" for number in range(1, schema.SCHEMA + 1)]


def test_unknown_columns_keep_their_values(store: PostgresStore, sql: psycopg.Connection) -> None:
    """Schema N works with code N - 1."""
    sql.execute("ALTER TABLE onerow.task_queue ADD COLUMN newer text DEFAULT 'kept'")
    put(store)
    claim_one(store)
    assert sql.execute("SELECT newer FROM onerow.task_queue").fetchall() == [("kept",)]


def test_code_that_is_too_old_is_refused(store: PostgresStore, sql: psycopg.Connection) -> None:
    sql.execute("UPDATE onerow.onerow_meta SET value = 99 WHERE key = 'schema'")
    store.check()
    sql.execute("UPDATE onerow.onerow_meta SET value = 99 WHERE key = 'min_code'")
    for operation in (store.check, store.prepare):
        with pytest.raises(CodeTooOld, match="upgrade"):
            operation()


def test_a_role_without_create_rights_works_on_existing_tables(store: PostgresStore, sql: psycopg.Connection) -> None:
    database = sql.info.dbname
    role = new_name("worker_")
    sql.execute(f"CREATE ROLE {role} LOGIN")
    try:
        sql.execute(f"GRANT USAGE ON SCHEMA onerow TO {role}")
        sql.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA onerow TO {role}")
        url = f"postgresql://{role}@{sql.info.host}:{sql.info.port}/{database}"
        worker = PostgresStore(url)
        worker.prepare()
        put(worker)
        assert claim_one(worker) == stored(store)
        worker.close()
        stranger = PostgresStore(url, schema="elsewhere")
        with pytest.raises(StoreReadOnly, match="permission denied"):
            stranger.prepare()
        stranger.close()
    finally:
        sql.execute(f"DROP OWNED BY {role}")
        sql.execute(f"DROP ROLE {role}")


def test_concurrent_prepares_succeed(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(8)]
    failed: list[Exception] = []

    def prepare(store: PostgresStore) -> None:
        try:
            store.prepare()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=prepare, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert failed == []


@pytest.mark.parametrize("name", ["", "1st", "my-schema", 'x"y', "a" * 51, "스키마"])
def test_an_invalid_schema_name_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="can't name a schema"):
        PostgresStore(
            f"postgresql://localhost/x?schema={name}" if name else "postgresql://localhost/x", schema=name or " "
        )


def test_the_columns_match_the_fields_of_a_task(store: PostgresStore, sql: psycopg.Connection) -> None:
    rows = sql.execute(
        "SELECT column_name, data_type, column_default FROM information_schema.columns "
        "WHERE table_schema = 'onerow' AND table_name = 'task_queue'"
    ).fetchall()
    types = {name: kind for name, kind, _ in rows}
    assert types == {
        COLUMN[field]: SQL_TYPE[KINDS[field]].replace("timestamptz", "timestamp with time zone") for field in FIELDS
    }


def test_column_defaults_match_the_defaults_of_a_task(store: PostgresStore, sql: psycopg.Connection) -> None:
    sql.execute("INSERT INTO onerow.task_queue (task_id, type) VALUES ('t1', 'script')")
    task = stored(store)
    assert {field: getattr(task, field) for field in DEFAULTS} == DEFAULTS


def test_the_table_accepts_exactly_the_statuses_of_the_core(store: PostgresStore, sql: psycopg.Connection) -> None:
    for status in Status:
        sql.execute("INSERT INTO onerow.task_queue (task_id, type, status) VALUES (%s, 'x', %s)", (status, status))
    with pytest.raises(psycopg.errors.CheckViolation):
        sql.execute("INSERT INTO onerow.task_queue (task_id, type, status) VALUES ('x', 'x', 'done')")
