"""What an adoption and its way back must not lose: tasks of others, rows of tasks that ran, rows that no trigger saw."""

from collections.abc import Callable
from typing import Any

import pytest

from onerow.core.errors import BadInput, IllegalMove
from onerow.core.table_mapping import TableMapping, read_mapping
from onerow.engine.queue.adopt import Adopted, Adoption, look, undo
from onerow.engine.worker import Worker
from onerow.wiring import Queue
from tests.engine.kit import until
from tests.tables import old_tables
from tests.tables.kit import Database, pipeline, shipped

MAPPING = {
    "table": "jobs",
    "pipeline": "jobs",
    "phase": "run",
    "columns": {"id": "task_id", "status": "status", "note": "payload.note"},
    "statuses": {
        "queued": "waiting", "running": "processing", "done": "completed", "bad": "failed", "off": "cancelled",
    },
}  # fmt: skip
JOBS = pipeline("jobs", "run")


def ready(db: Database, *statuses: str, key: str = "text", **options: Any) -> tuple[TableMapping, Queue]:
    """A table of jobs with ids from 1, and a published pipeline."""
    queue = db.queue(pipeline("jobs", "run", **options) if options else JOBS)
    db.sql(f"CREATE TABLE jobs (id {key} PRIMARY KEY, status text NOT NULL, note text UNIQUE)")
    for number, status in enumerate(statuses, 1):
        db.sql("INSERT INTO jobs VALUES (?, ?, ?)", number if key == "integer" else str(number), status, f"n{number}")
    columns: dict[str, Any] = {"columns": MAPPING["columns"] | {"id": "task_id:integer"}} if key == "integer" else {}  # type: ignore[operator]
    return read_mapping(MAPPING | columns), queue


def adopt(db: Database, mapping: TableMapping, progress: Callable[[Adopted], None] = lambda done: None) -> Adopted:
    return Adoption(db.store, db.store.old_table(mapping), wait=lambda seconds: None, progress=progress).run()


def ids(db: Database, table: str = "jobs") -> list[str]:
    return [str(key) for (key,) in db.sql(f"SELECT id FROM {table} ORDER BY id")]


def once(step: Callable[[], object]) -> Callable[[Adopted], None]:
    """A progress function that takes the step at its first call."""
    left = [step]

    def progress(done: Adopted) -> None:
        if left:
            left.pop()()

    return progress


def test_tasks_that_the_pipeline_has_already_stop_it_before_anything_is_changed(db: Database) -> None:
    mapping, queue = ready(db, "queued")
    own = queue.add(JOBS, {"note": "own"})
    assert "pipeline jobs has 1 tasks already" in [each.what for each in look(db.store.old_table(mapping)).findings]
    with pytest.raises(BadInput, match="has 1 tasks already"):
        adopt(db, mapping)
    with pytest.raises(BadInput, match="was not adopted here"):
        undo(db.store, db.store.old_table(mapping))
    assert queue.get(own.task_id).status == "waiting"


def test_undo_during_the_copy_keeps_tasks_that_were_added(db: Database) -> None:
    mapping, queue = ready(db, "queued", "queued")

    def interrupt() -> None:
        queue.add(JOBS, {"note": "own"}, task_id="own")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adopt(db, mapping, once(interrupt))
    undo(db.store, db.store.old_table(mapping))
    assert [task.task_id for task in queue.find().tasks] == ["own"]
    assert ids(db) == ["1", "2"]


def test_undo_is_refused_after_tasks_ran_and_were_deleted_at_their_end(db: Database) -> None:
    mapping, queue = ready(db, "queued", "bad", keep={"completed": "0s"})
    adopt(db, mapping)
    Worker(queue, until_idle=True).run()
    assert ids(db) == ["2"]
    with pytest.raises(IllegalMove, match="tasks have run since jobs was adopted"):
        undo(db.store, db.store.old_table(mapping))
    assert ids(db, "jobs_before_onerow") == ["1", "2"]


def test_undo_is_refused_after_a_purge(db: Database) -> None:
    mapping, queue = ready(db, "queued", "done")
    adopt(db, mapping)
    assert queue.purge(older_than=0) == 1
    with pytest.raises(IllegalMove, match="tasks were purged since jobs was adopted"):
        undo(db.store, db.store.old_table(mapping))
    assert ids(db, "jobs_before_onerow") == ["1", "2"]


def test_an_adoption_that_another_process_has_finished_writes_nothing_more(db: Database) -> None:
    mapping, queue = ready(db, "queued", "queued")

    def overtaken() -> None:
        adopt(db, mapping)
        queue.pause("jobs")
        queue.annotate("1", {"changed": True})
        queue.resume("jobs")

    class Overtaken:  # an OldTable
        """The table of a process that is frozen between reading and writing its first page."""

        def __init__(self) -> None:
            self._table, self._first = db.store.old_table(mapping), True

        def __getattr__(self, name: str) -> Any:
            return getattr(self._table, name)

        def write(self, tasks: Any, gone: Any) -> None:
            if self._first:
                self._first = False
                overtaken()
            self._table.write(tasks, gone)

    frozen: Any = Overtaken()
    with pytest.raises(BadInput, match="another process has finished or undone the adoption of jobs"):
        Adoption(db.store, frozen, wait=lambda seconds: None).run()
    assert queue.get("1").metadata == {"changed": True}


def test_a_row_that_no_trigger_saw_is_not_left_as_a_task(db: Database) -> None:
    mapping, _ = ready(db, "queued", "queued")

    def unseen() -> None:
        if db.kind == "sqlite":
            db.sql("INSERT OR REPLACE INTO jobs VALUES ('9', 'queued', 'n1')")  # REPLACE fires no trigger for DELETE
        else:
            db.sql("SET session_replication_role = replica")
            db.sql("DELETE FROM jobs WHERE id = '1'")
            db.sql("SET session_replication_role = DEFAULT")
            db.sql("INSERT INTO jobs VALUES ('9', 'queued', 'n1')")

    adopt(db, mapping, once(unseen))
    assert ids(db) == ["2", "9"]


def test_the_comparison_under_the_lock_reads_each_row_a_few_times(pg: Database) -> None:
    mapping, _ = ready(pg)
    count = 2_000
    pg.sql("ALTER TABLE jobs SET (autovacuum_enabled = false)")  # nor has task_queue statistics of the copied rows
    pg.sql("INSERT INTO jobs SELECT CAST(n AS text), 'queued', 'n' || n FROM generate_series(1, ?) AS n", count)
    adopt(pg, mapping)
    pg.store.close()
    # The counters of a session are complete when it has ended.
    sessions = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    until(lambda: not pg.sql(sessions), "the end of the store's sessions")
    ((read,),) = pg.sql(
        "SELECT CAST(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) AS bigint) FROM pg_stat_user_tables "
        "WHERE relname IN ('jobs_before_onerow', 'task_queue')"
    )
    assert 2 * count <= read <= 100 * count


def test_a_row_that_was_inserted_and_no_trigger_saw_stops_it(pg: Database) -> None:
    mapping, _ = ready(pg, "queued")

    def unseen() -> None:
        pg.sql("SET session_replication_role = replica")
        pg.sql("INSERT INTO jobs VALUES ('9', 'queued', 'new')")
        pg.sql("SET session_replication_role = DEFAULT")

    seen: list[int] = []

    def progress(done: Adopted) -> None:
        seen.append(done.verified)
        if done.verified:
            unseen()

    with pytest.raises(BadInput, match="1 rows of jobs were written without its triggers"):
        adopt(pg, mapping, progress)
    assert ids(pg) == ["1", "9"]


def test_undo_names_a_task_that_the_old_table_can_not_hold(db: Database) -> None:
    mapping, queue = ready(db, "queued", "queued", key="integer")
    adopt(db, mapping)
    own = queue.add(JOBS, {"note": "own"})
    db.sql("DELETE FROM jobs WHERE id = 2")
    with pytest.raises(IllegalMove, match=f"task {own.task_id} has no id that jobs can hold"):
        undo(db.store, db.store.old_table(mapping))
    queue.cancel(own.task_id)
    assert queue.purge(older_than=0) == 1
    assert ids(db) == ["1"]


def test_undo_of_a_table_named_task_queue_keeps_tables_of_the_user(bare: Database) -> None:
    if bare.kind == "postgres":
        pytest.skip("on PostgreSQL onerow's tables have a schema of their own")
    old_tables.make(bare, old_tables.TASK_QUEUE)
    old_tables.fill_task_queue(bare, 3)
    bare.sql("CREATE TABLE onerow_backup (x integer)")
    adopt(bare, shipped("task_queue"))
    undo(bare.store, bare.store.old_table(shipped("task_queue")))
    assert bare.sql("SELECT name FROM sqlite_master WHERE name GLOB 'onerow*'") == [("onerow_backup",)]


def test_tables_of_the_same_name_in_two_schemas_have_captures_of_their_own(pg: Database) -> None:
    pg.queue(JOBS, pipeline("others", "run"))
    for schema in ("a", "b"):
        pg.sql(f"CREATE SCHEMA {schema}")
        pg.sql(f"CREATE TABLE {schema}.jobs (id text PRIMARY KEY, status text NOT NULL, note text)")
        pg.sql(f"INSERT INTO {schema}.jobs VALUES (?, 'queued', '')", schema)
    first = pg.store.old_table(read_mapping(MAPPING | {"table": "a.jobs"}))
    second = pg.store.old_table(read_mapping(MAPPING | {"table": "b.jobs", "pipeline": "others"}))
    first.start()
    second.start()
    pg.sql("INSERT INTO a.jobs VALUES ('a2', 'queued', '')")
    assert (list(first.changed(10).keys), list(second.changed(10).keys)) == (["a2"], [])
