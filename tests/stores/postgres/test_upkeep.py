"""Maintenance: what doctor and migrate report about a database."""

from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from onerow.cli.main import main
from onerow.core.errors import BadInput
from onerow.ports import Administrable
from onerow.stores.postgres import PostgresStore


def bad(store: PostgresStore) -> list[str]:
    return [finding.what for finding in store.inspect() if finding.level == "bad"]


def slow(store: PostgresStore) -> list[str]:
    return [finding.what for finding in store.inspect() if finding.level == "slow"]


def test_a_healthy_database_has_no_findings(store: PostgresStore) -> None:
    assert isinstance(store, Administrable)
    assert (bad(store), slow(store)) == ([], [])


def test_a_database_without_our_tables_is_not_ready(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    assert bad(store) == ["schema 0, not 2"]
    store.close()


def test_doctor_checks_each_unique_index_of_the_tasks(store: PostgresStore, sql: psycopg.Connection) -> None:
    in_table = sql.execute(
        "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "WHERE indrelid = 'onerow.task_queue'::regclass AND indisunique"
    ).fetchall()
    sql.execute("ALTER TABLE onerow.task_queue DROP CONSTRAINT task_queue_pkey")
    sql.execute("DROP INDEX onerow.task_slot, onerow.task_key_slot, onerow.task_unique")
    assert {what.split()[3] for what in bad(store)} == {name for (name,) in in_table}
    assert slow(store) == []


@pytest.mark.parametrize(
    "other",
    [
        "INDEX task_slot ON onerow.task_queue (pipeline, type, slot) WHERE slot IS NOT NULL",
        "UNIQUE INDEX task_slot ON onerow.task_queue (pipeline, type, slot) WHERE slot > 9",
    ],
)
def test_the_sql_that_doctor_offers_restores_a_unique_index(
    store: PostgresStore, sql: psycopg.Connection, other: str
) -> None:
    sql.execute("DROP INDEX onerow.task_slot")
    sql.execute(f"CREATE {other}")
    (finding,) = [finding for finding in store.inspect() if finding.level == "bad"]
    sql.execute("DROP INDEX onerow.task_slot")
    sql.execute(finding.fix.partition(": ")[2])
    assert bad(store) == []


def test_commits_that_can_be_lost_are_found(store: PostgresStore, postgres_url: str) -> None:
    careless = PostgresStore(f"{postgres_url}?options=-c%20synchronous_commit%3Doff")
    assert [what[:29] for what in bad(careless)] == ["synchronous_commit is off: a "]
    careless.close()


def test_a_pooler_is_reported(pgbouncer_url: str, postgres_url: str, store: PostgresStore) -> None:
    pooled = PostgresStore(pgbouncer_url)
    assert [what[:8] for what in slow(pooled)] == ["a pooler"]
    pooled.close()
    listening = PostgresStore(pgbouncer_url, listen=postgres_url)
    assert slow(listening) == []
    listening.close()


def test_backup_refers_to_pg_dump(store: PostgresStore, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="pg_dump"):
        store.backup(tmp_path / "copy", lambda share: None)


def test_migrate_prints_the_pending_sql_and_runs_it(postgres_url: str, sql: psycopg.Connection) -> None:
    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["migrate", *words, "--store", postgres_url])
        return result.exit_code, result.output

    assert run("--check")[0] == 1
    printed = run("--sql")[1]
    assert "CREATE TABLE" in printed
    assert sql.execute("SELECT FROM pg_namespace WHERE nspname = 'onerow'").fetchone() is None
    assert run()[0] == 0
    assert run("--check")[0] == 0
    assert run("--sql") == (0, "")
