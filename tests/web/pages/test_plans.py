"""Query plans: no page reads the whole table, on SQLite, PostgreSQL and MongoDB."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from onerow import Queue, Status
from onerow.stores.mongo import MongoStore, connections
from onerow.stores.postgres import PostgresStore
from onerow.stores.shared import paging
from onerow.stores.sqlite import SqliteStore
from onerow.web import dashboard
from tests.samples import a_task
from tests.stores.postgres.test_plans import explained, rows_read
from tests.web.pages.kit import Browser, fill

ROWS = 20_000
MOST_READ = 2_500
"""More than the 500 latest failures, 1,000 leases or 2,000 log lines that pages read at most; far less than ROWS."""


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches for what no index has read the table in steps of at most 2,000 rows, however fast the machine is."""
    monkeypatch.setattr(paging, "_LARGEST_BATCH", 2_000)


def pages(ids: dict[str, str]) -> list[str]:
    return [
        "", "board?pipeline=clips", "tasks", "tasks?q=status:failed", "tasks?q=status:completed+phase:video",
        "tasks?q=user:u1", "tasks?q=error:network", "tasks?q=worker:w1", "tasks?q=signal:images.ready", "tasks?q=pipeline:mails", "waiting", "failures", "phases", "workers",
        "schedules", "operations", "system", "new", "complete?q=user:", "complete?q=payload.",
        *(f"task?id={ids[name]}&tab={tab}" for name in ("failed", "waiting", "parked") for tab in ("attempts", "log", "related")),
        f"act?name=retry&id={ids['failed']}", "act?name=retry&q=status:failed",
    ]  # fmt: skip


def crowd(queue: Queue) -> None:
    """Insert ended tasks of the same pipelines."""
    store = queue.store
    now = store.now()
    for start in range(0, ROWS, 5_000):
        store.insert(
            [
                a_task(
                    f"old{number:06}", pipeline="clips", phase="video", user_id=f"u{number % 500}", title=f"Clip {number}",
                    created_at=(at := now - timedelta(hours=1, seconds=number)), run_at=at, updated_at=at, completed_at=at,
                    status=Status.COMPLETED if number % 200 else Status.FAILED, error="refused" if number % 200 == 0 else None,
                    error_class="network" if number % 200 == 0 else None, payload={"topic": number},
                )
                for number in range(start, start + 5_000)
            ]
        )  # fmt: skip


def test_no_page_reads_the_whole_table_of_postgresql(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    queue = Queue(store)
    ids = fill(queue)
    crowd(queue)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE onerow.task_queue")
    app = dashboard(queue)
    browser = Browser(app)
    for page in pages(ids):
        with explained(store) as plans:
            assert browser.get(page).status_code == 200, page
        for plan in plans:
            if "on task_queue" in plan:
                assert rows_read(plan) <= MOST_READ, (page, plan)
                assert "Seq Scan on task_queue" not in plan, (page, plan)
    app.close()
    queue.close()


@contextmanager
def traced(store: SqliteStore) -> Iterator[list[str]]:
    """Collect the statements that the store runs in the block, with their values."""
    statements: list[str] = []
    store.close()
    connect = sqlite3.connect

    def connect_and_trace(*given: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **options)
        connection.set_trace_callback(statements.append)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect_and_trace)
        yield statements
        store.close()


def test_no_page_reads_the_whole_table_of_sqlite(sqlite_url: str) -> None:
    store = SqliteStore(sqlite_url.removeprefix("sqlite:///"))
    queue = Queue(store)
    ids = fill(queue)
    crowd(queue)
    app = dashboard(queue)
    browser = Browser(app)
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        for page in pages(ids):
            with traced(store) as statements:
                assert browser.get(page).status_code == 200, page
            for statement in {
                each
                for each in statements
                if "task_queue" in each and each.lstrip().upper().startswith(("SELECT", "WITH"))
            }:
                plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
                scans = [line for line in plan if re.match(r"SCAN (task_queue|t|q)\b(?! USING)", line)]
                assert not scans, (page, statement[:500], plan)
    app.close()
    queue.close()


class Reads(CommandListener):
    """Collects the commands that read tasks."""

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in ("find", "aggregate", "count", "distinct"):
            left_out = ("lsid", "$db", "$clusterTime", "$readPreference", "readConcern", "txnNumber", "maxTimeMS")
            command = {name: value for name, value in event.command.items() if name not in left_out}
            if command[event.command_name] == "task_queue":
                self.commands.append(command)

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


@pytest.mark.slow
def test_no_page_reads_the_whole_collection_of_mongodb(
    mongo_replica_set_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads()

    def client(*given: Any, **options: Any) -> MongoClient[Any]:
        return MongoClient(*given, **options | {"event_listeners": [*options.get("event_listeners", ()), reads]})

    monkeypatch.setattr(connections, "MongoClient", client)
    store = MongoStore(mongo_replica_set_url)
    queue = Queue(store)
    ids = fill(queue)
    crowd(queue)
    database = store._connections.collections().database
    app = dashboard(queue)
    browser = Browser(app)
    explained = 0
    for page in pages(ids):
        reads.commands.clear()
        answer = browser.get(page)
        assert answer.status_code == 200, (page, answer.text[-1500:])
        for command in list(reads.commands):
            if _counts_all_ended(command):
                continue
            plan = database.command("explain", command, verbosity="executionStats")
            assert "COLLSCAN" not in _winning(plan), (page, command, plan)
            assert _examined(plan) <= MOST_READ, (page, command, plan)
            explained += 1
    assert explained > len(pages(ids))
    app.close()
    queue.close()


def _counts_all_ended(command: dict[str, Any]) -> bool:
    """Whether this is the count of all ended tasks, which the store repeats in at most a twentieth of the time.

    MongoDB has no kept counters: they would be a second document, which no single step writes together with the task.
    """
    match = command.get("pipeline", [{}])[0].get("$match")
    return bool(match == {"$and": [{"purged_at": None}, {"status": {"$in": ["cancelled", "completed", "failed"]}}]})


def _winning(plan: Any) -> str:
    """Return the winning plans of an explained command, those of its stages too."""
    if isinstance(plan, list):
        return " ".join(map(_winning, plan))
    if not isinstance(plan, dict):
        return ""
    return " ".join(str(value) if name == "winningPlan" else _winning(value) for name, value in plan.items())


def _examined(plan: Any) -> int:
    """Return the largest number of index entries or documents that an explained command examined."""
    if isinstance(plan, list):
        return max(map(_examined, plan), default=0)
    if not isinstance(plan, dict):
        return 0
    own = max(int(plan.get("totalKeysExamined", 0)), int(plan.get("totalDocsExamined", 0)))
    return max([own, *map(_examined, plan.values())])
