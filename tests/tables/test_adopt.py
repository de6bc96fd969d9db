"""Adopting a table: rows become tasks, programs go on, the way back; what stops it is named and changes nothing."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner

from onerow.cli.main import main
from onerow.core.adoption import Processing
from onerow.core.errors import BadInput, IllegalMove, StoreError
from onerow.core.table_mapping import TableMapping
from onerow.core.task import Task
from onerow.engine.queue.adopt import Adopted, Adoption, undo
from onerow.table_ports import OldTable, TableBusy
from tests.engine.kit import until
from tests.runner.seeded import new_name
from tests.tables import old_tables
from tests.tables.kit import ACCOUNT, POST, Database, database, pipeline, shipped


def adopt(db: Database, mapping: TableMapping, processing: Processing = "stop", **options: Any) -> Adopted:
    return Adoption(db.store, db.store.old_table(mapping), processing, wait=lambda seconds: None, **options).run()


def as_it_was(db: Database, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return sorted(db.sql(f"SELECT {columns} FROM {table}"), key=lambda row: str(row[0]))


CASES: dict[str, tuple[str, str, str, str]] = {
    # mapping: script, pipeline, columns that are the same before and after, INSERT of a program
    "ai_tag_queue": (old_tables.AI_TAG_QUEUE, "tagging", "id, workspace_threads_account_id, post_id, status, attempts, max_attempts, error_message, date_trunc('milliseconds', created_at), date_trunc('milliseconds', completed_at)", f"INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) VALUES ('{ACCOUNT}', '{POST}') RETURNING max_attempts"),
    "delayed_job": (old_tables.DELAYED_JOBS, "delayed_jobs", "id, priority, attempts, handler, last_error, queue, date_trunc('milliseconds', run_at), date_trunc('milliseconds', failed_at)", "INSERT INTO delayed_jobs (handler) VALUES ('--- x') RETURNING id"),
    "jobs": (old_tables.JOBS, "jobs", "id, queue, payload, CAST(status AS text), priority, attempts, max_attempts, locked_by, error, date_trunc('milliseconds', finished_at)", "INSERT INTO jobs (payload, priority) VALUES ('{\"a\": 1}', 7) RETURNING id"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_shipped_mapping_adopts_its_table_and_gives_it_back(pg: Database, name: str) -> None:
    script, pipeline_name, columns, insert = CASES[name]
    mapping = shipped(name)
    queue = pg.queue(pipeline(pipeline_name, mapping.phase))
    old_tables.make(pg, script)
    before = as_it_was(pg, mapping.table, columns)
    done = adopt(pg, mapping)
    assert (done.copied, done.verified) == (40, 40)
    assert as_it_was(pg, mapping.table, columns) == before
    assert as_it_was(pg, f"{mapping.table}_before_onerow", columns) == before
    ((new,),) = pg.sql(insert)  # the defaults of the old table apply
    assert new in (3, 41)
    assert all(finding.level == "good" for finding in pg.store.inspect())
    # The way back takes the new row along.
    assert undo(pg.store, pg.store.old_table(mapping)) == "the table has its name back"
    after = as_it_was(pg, mapping.table, columns)
    assert [row for row in after if row in before] == before
    assert len(after) == len(before) + 1
    assert pg.sql("SELECT count(*) FROM onerow.task_queue") == [(0,)]
    pg.sql(insert.replace(POST, str(uuid4())))
    # And forward again: what was undone leaves nothing behind.
    assert adopt(pg, mapping).verified == 42
    assert queue.get(str(pg.sql(f"SELECT {mapping.key.name} FROM {mapping.table} LIMIT 1")[0][0])) is not None


def test_a_sqlite_table_named_task_queue(bare: Database) -> None:
    if bare.kind == "postgres":
        old_tables.make(bare, "CREATE SCHEMA onerow;\nCREATE TABLE onerow.task_queue (id integer PRIMARY KEY);\n")
        with pytest.raises(StoreError, match="not onerow's") as caught:
            bare.store.prepare()
        assert "onerow pg adopt onerow.task_queue" in caught.value.fix
        return
    old_tables.make(bare, old_tables.TASK_QUEUE)
    old_tables.fill_task_queue(bare, 60)
    with pytest.raises(StoreError, match="a table task_queue that is not onerow's") as caught:
        bare.store.prepare()
    assert "onerow sqlite adopt task_queue" in caught.value.fix
    columns = "task_id, type, status, user_id, priority, elapsed_time, retry_count, max_retries, error"
    before, whole = as_it_was(bare, "task_queue", columns), as_it_was(bare, "task_queue")
    assert adopt(bare, shipped("task_queue")).verified == 60
    assert as_it_was(bare, "task_queue", columns) == before  # its columns are columns of onerow's table
    assert all(finding.level == "good" for finding in bare.store.inspect())
    videos = pipeline("videos", "schedule", "script", "image", "video", "youtube")
    queue = bare.queue(videos)
    assert queue.get("영상-000001").metadata == {"a": [1, None]}
    assert undo(bare.store, bare.store.old_table(shipped("task_queue"))) == "the table has its name back"
    assert as_it_was(bare, "task_queue") == whole
    assert bare.sql("SELECT name FROM sqlite_master WHERE name GLOB 'onerow*'") == []


def test_a_sqlite_table_with_a_view_in_its_place(lite: Database) -> None:
    mapping = _transcription()
    lite.queue(pipeline("transcribe", "transcribe"))
    old_tables.make(lite, old_tables.SQLITE_JOBS)
    old_tables.fill_transcription_jobs(lite, 40)
    lite.sql("CREATE VIEW open_jobs AS SELECT id FROM transcription_jobs WHERE status = 'queued'")
    before, columns = (
        as_it_was(lite, "transcription_jobs"),
        "id, video_id, url, title, status, transcript_path, created_at",
    )
    shown = as_it_was(lite, "transcription_jobs", columns)
    adopt(lite, mapping)
    assert as_it_was(lite, "transcription_jobs", columns) == shown
    assert lite.sql("SELECT count(*) FROM open_jobs") == [(10,)]
    lite.sql("INSERT INTO transcription_jobs (video_id) VALUES ('new')")
    lite.sql("UPDATE transcription_jobs SET status = 'cancelled' WHERE video_id = 'v0'")
    lite.sql("DELETE FROM transcription_jobs WHERE video_id = 'v4'")
    assert lite.sql("SELECT count(*) FROM open_jobs") == [(9,)]
    undo(lite.store, lite.store.old_table(mapping))
    after = as_it_was(lite, "transcription_jobs")
    assert [row for row in after if row in before] == [row for row in before if row[1] not in ("v0", "v4")]
    assert lite.sql("SELECT id, status FROM transcription_jobs WHERE video_id IN ('v0', 'new') ORDER BY id") == [
        (1, "cancelled"),
        (41, "queued"),
    ]
    assert lite.sql("SELECT count(*) FROM open_jobs") == [(9,)]


def _transcription(**changes: Any) -> TableMapping:
    """The shipped mapping without the flags of steps, which can't be adopted."""
    columns = {
        column.name: f"{column.field}:{column.type}".rstrip(":")
        for column in shipped("transcription_jobs").columns
        if not column.field.startswith("steps.")
    }
    return shipped("transcription_jobs", **({"columns": columns} | changes))


def test_programs_go_on_writing_while_it_runs(db: Database) -> None:
    mapping, _ = _ready(db, 700)
    stop = threading.Event()
    failures: list[Exception] = []
    writer = threading.Thread(target=_write, args=(db, stop, failures))
    writer.start()
    try:
        done = adopt(db, mapping)
        deadline = time.monotonic() + 60
        while db.sql("SELECT count(*) FROM app_log")[0][0] < 200 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        stop.set()
        writer.join()
    assert failures == []
    assert done.copied >= 600
    # Each row that the program wrote is there, before and after the swap, and none that it deleted.
    wanted = db.sql(
        "SELECT name FROM app_log WHERE what = 'insert' AND name NOT IN (SELECT name FROM app_log WHERE what = 'delete') ORDER BY name"
    )
    assert db.sql("SELECT video_id FROM transcription_jobs WHERE video_id LIKE 'w%' ORDER BY video_id") == wanted
    assert len(wanted) >= 100


def _ready(db: Database, rows: int) -> tuple[TableMapping, str]:
    """The same table in both databases, with rows, and a published pipeline."""
    db.queue(pipeline("transcribe", "transcribe"))
    script = old_tables.SQLITE_JOBS
    if db.kind == "postgres":
        script = script.replace("INTEGER PRIMARY KEY AUTOINCREMENT", "bigserial PRIMARY KEY").replace(
            "TEXT DEFAULT CURRENT_TIMESTAMP", "timestamp DEFAULT now()"
        )
    old_tables.make(db, script)
    db.sql("CREATE TABLE app_log (what TEXT, name TEXT)")
    for n in range(rows):
        db.sql(
            "INSERT INTO transcription_jobs (video_id, status) VALUES (?, ?)",
            f"v{n}",
            ("queued", "completed", "failed")[n % 3],
        )
    return _transcription(columns=_columns(db)), "*"


def _columns(db: Database) -> dict[str, str]:
    names = {"id": "task_id:integer", "video_id": "payload.video_id", "url": "payload.url", "title": "title", "engine": "payload.engine", "status": "status",
             "error": "error", "retry_count": "retry_count", "transcript_path": "results.transcribe.transcript_path", "summary": "results.transcribe.summary",
             "created_at": "created_at:datetime", "updated_at": "updated_at:datetime"}  # fmt: skip
    return names | ({"id": "task_id:bigint"} if db.kind == "postgres" else {})


def _write(db: Database, stop: threading.Event, failures: list[Exception]) -> None:
    """A program that inserts and deletes rows, and records what it did in the same transaction."""
    with database(db.kind, db.url) as own:
        n = 0
        while not stop.is_set():
            n += 1
            name = f"w{n:05}"
            try:
                own.sql("BEGIN" if db.kind == "postgres" else "BEGIN IMMEDIATE")
                own.sql("INSERT INTO transcription_jobs (video_id) VALUES (?)", name)
                own.sql("INSERT INTO app_log VALUES ('insert', ?)", name)
                if n % 3 == 0:
                    gone = f"w{n - 1:05}"
                    own.sql("DELETE FROM transcription_jobs WHERE video_id = ?", gone)
                    own.sql("INSERT INTO app_log VALUES ('delete', ?)", gone)
                own.sql("COMMIT")
            except Exception as error:
                failures.append(error)
                return
            time.sleep(0.002)


class LosesOneWrite:
    """An old table that is busy at the first try to swap, and whose copy of row 2 is then lost."""

    def __init__(self, db: Database, table: OldTable) -> None:
        self._db, self._table = db, table
        self._busy = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def swap(self, settle: Callable[[], None], body: Any) -> None:
        if self._busy:
            self._busy = False
            self._db.sql("UPDATE transcription_jobs SET title = '제목' WHERE id = 2")
            raise TableBusy("busy")
        self._table.swap(settle, body)

    def write(self, tasks: Sequence[Task], gone: Sequence[str]) -> None:
        self._table.write([task for task in tasks if self._busy or task.task_id != "2"], gone)


def test_a_row_that_a_program_writes_after_the_comparison_is_compared_again(db: Database) -> None:
    mapping, _ = _ready(db, 3)
    table: Any = LosesOneWrite(db, db.store.old_table(mapping))
    with pytest.raises(BadInput, match="row 2 of transcription_jobs is not shown as it is: title"):
        Adoption(db.store, table, wait=lambda seconds: None).run()
    assert db.sql("SELECT title FROM transcription_jobs WHERE id = 2") == [("제목",)]  # the old table is still in place
    assert adopt(db, mapping).verified == 3  # run again, without the fault
    assert db.sql("SELECT title FROM transcription_jobs WHERE id = 2") == [("제목",)]


def test_a_table_that_a_program_truncates_is_empty_afterwards_too(pg: Database) -> None:
    mapping, _ = _ready(pg, 30)
    emptied: list[Adopted] = []

    def progress(done: Adopted) -> None:
        if not emptied:
            emptied.append(done)
            pg.sql("TRUNCATE transcription_jobs")
            pg.sql("INSERT INTO transcription_jobs (video_id) VALUES ('new')")

    done = Adoption(pg.store, pg.store.old_table(mapping), wait=lambda seconds: None, progress=progress).run()
    assert (done.copied, done.verified) == (30, 1)
    assert pg.sql("SELECT video_id FROM transcription_jobs") == [("new",)]
    assert pg.sql("SELECT count(*) FROM onerow.task_queue") == [(1,)]


@pytest.mark.parametrize("analyzed", [False, True])
def test_the_number_of_rows_is_known_before_and_after_the_first_analyze(pg: Database, analyzed: bool) -> None:
    mapping, _ = _ready(pg, 30)
    if analyzed:
        pg.sql("ANALYZE transcription_jobs")
    until(lambda: pg.store.old_table(mapping).shape().rows == 30, "the statistics of the server")


def test_rows_that_the_old_system_is_processing_stop_it(db: Database) -> None:
    mapping, _ = _ready(db, 3)
    db.sql("UPDATE transcription_jobs SET status = 'running' WHERE id = 1")
    with pytest.raises(IllegalMove, match="1 rows of transcription_jobs are being processed") as caught:
        adopt(db, mapping)
    assert "--processing requeue" in caught.value.fix
    db.sql("UPDATE transcription_jobs SET status = 'completed' WHERE id = 1")  # the old system's worker goes on
    adopt(db, mapping)
    assert db.sql("SELECT status FROM transcription_jobs WHERE id = 1") == [("completed",)]


@pytest.mark.parametrize("processing, word", [("requeue", "queued"), ("fail", "failed")])
def test_rows_in_flight_are_requeued_or_failed_if_asked(db: Database, processing: Processing, word: str) -> None:
    mapping, _ = _ready(db, 3)
    db.sql("UPDATE transcription_jobs SET status = 'running' WHERE id = 1")
    adopt(db, mapping, processing)
    assert db.sql("SELECT status FROM transcription_jobs WHERE id = 1") == [(word,)]
    (task,) = db.store.fetch(["1"])
    assert task.history[0].note == "was processing when the table was adopted"
    # The old worker learns that the row is no longer its own.
    assert "queue.claim" in db.refused("UPDATE transcription_jobs SET status = 'completed' WHERE id = 1")


def test_the_pipeline_is_paused_until_the_view_is_there(db: Database) -> None:
    mapping, _ = _ready(db, 3)
    queue = db.queue()
    seen: list[int] = []
    adopt(db, mapping, progress=lambda done: seen.append(len(queue.claim("transcribe", limit=5))))
    assert seen
    assert set(seen) == {0}
    assert len(queue.claim("transcribe", limit=5)) == 1


def test_a_pause_of_an_operator_stays(db: Database) -> None:
    mapping, _ = _ready(db, 3)
    queue = db.queue()
    queue.pause("transcribe", reason="점검")
    adopt(db, mapping)
    assert len(queue.claim("transcribe")) == 0
    queue.resume("transcribe")
    assert len(queue.claim("transcribe")) == 1


def test_undo_is_refused_once_a_task_has_run(db: Database) -> None:
    mapping, _ = _ready(db, 3)
    adopt(db, mapping)
    with db.queue().claim("transcribe") as (lease,):
        lease.complete()
    with pytest.raises(IllegalMove, match="has run since") as caught:
        undo(db.store, db.store.old_table(mapping))
    assert "transcription_jobs_before_onerow" in caught.value.fix
    with pytest.raises(BadInput, match="is adopted already"):
        adopt(db, mapping)


def test_undo_before_the_swap_removes_what_was_copied(db: Database) -> None:
    mapping, _ = _ready(db, 3)

    def interrupt(done: Adopted) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adopt(db, mapping, progress=interrupt)
    assert undo(db.store, db.store.old_table(mapping)) == "the copied tasks were removed"
    assert db.store.fetch(["1", "2", "3"]) == []
    assert db.queue().claim("transcribe") is not None  # the pause is gone
    with pytest.raises(BadInput, match="was not adopted here"):
        undo(db.store, db.store.old_table(mapping))
    db.sql("INSERT INTO transcription_jobs (video_id) VALUES ('x')")  # no trigger is left
    adopt(db, mapping)


def test_another_mapping_does_not_continue_an_adoption(db: Database) -> None:
    mapping, _ = _ready(db, 3)

    def interrupt(done: Adopted) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        adopt(db, mapping, progress=interrupt)
    with pytest.raises(BadInput, match="began with another mapping"):
        adopt(db, _transcription(columns=_columns(db), unique=[]))


def _break_nothing(db: Database) -> None: ...


STOPS: dict[str, tuple[Callable[[Database], Any], dict[str, Any], str, str]] = {
    "a column is lost": (lambda db: db.sql("ALTER TABLE transcription_jobs ADD COLUMN extra TEXT"), {}, "column extra is not in the mapping", 'lost = ["extra"]'),
    "a column is missing": (_break_nothing, {"columns": {"nope": "metadata.nope"}}, "no column nope", ""),
    "an unknown status": (lambda db: db.sql("UPDATE transcription_jobs SET status = 'paused' WHERE id = 1"), {}, "1 rows have the status 'paused'", "paused ="),
    "a foreign key": (lambda db: db.sql("CREATE TABLE chunks (job_id bigint REFERENCES transcription_jobs (id))"), {}, "references it", ""),
    "a value out of range": (lambda db: db.sql("UPDATE transcription_jobs SET retry_count = -1 WHERE id = 2"), {}, "row 2 of transcription_jobs: retry_count is -1", "metadata.X"),
    "an id that is not unique": (_break_nothing, {"columns": {"id": "metadata.id:integer", "video_id": "task_id"}}, "video_id, the task's id, is not unique", "primary key"),
    "the kept name": (lambda db: db.sql("CREATE TABLE transcription_jobs_before_onerow (id integer)"), {}, "_before_onerow", "rename"),
}  # fmt: skip


@pytest.mark.parametrize("case", STOPS)
def test_what_stops_it_is_named_and_changes_nothing(db: Database, case: str) -> None:
    change, mapping_change, problem, fix = STOPS[case]
    _ready(db, 3)
    change(db)
    columns = _columns(db) | mapping_change.get("columns", {})
    unique: dict[str, Any] = (
        {} if "video_id" in columns and columns["video_id"].startswith("payload") else {"unique": []}
    )
    with pytest.raises(BadInput) as caught:
        adopt(db, _transcription(columns=columns, **unique))
    assert problem in str(caught.value)
    assert fix in caught.value.fix
    assert len(db.sql("SELECT * FROM transcription_jobs")) == 3
    db.sql("INSERT INTO transcription_jobs (video_id) VALUES ('x')")


def test_triggers_and_views_of_the_table_stop_it(pg: Database) -> None:
    mapping, _ = _ready(pg, 3)
    pg.sql("CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    pg.sql("CREATE TRIGGER touch BEFORE UPDATE ON transcription_jobs FOR EACH ROW EXECUTE FUNCTION touch()")
    with pytest.raises(BadInput, match="trigger touch would no longer fire"):
        adopt(pg, mapping)
    pg.sql("CREATE VIEW open_jobs AS SELECT id FROM transcription_jobs")
    with pytest.raises(BadInput, match="the view open_jobs reads it"):
        adopt(pg, _transcription(columns=_columns(pg), lost=["touch"]))
    pg.sql("DROP VIEW open_jobs")
    pg.sql("ALTER TABLE transcription_jobs ENABLE ROW LEVEL SECURITY")
    with pytest.raises(BadInput, match="row-level security") as caught:
        adopt(pg, _transcription(columns=_columns(pg), lost=["touch"]))
    assert "onerow pg policies" in caught.value.fix


def test_grants_carry_over(pg: Database) -> None:
    mapping, _ = _ready(pg, 3)
    role = new_name("program_")
    pg.sql(f"CREATE ROLE {role}")
    try:
        pg.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON transcription_jobs TO {role}")
        pg.sql(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
        adopt(pg, mapping)
        pg.sql(f"SET ROLE {role}")
        pg.sql("INSERT INTO transcription_jobs (video_id) VALUES ('new')")
        pg.sql("UPDATE transcription_jobs SET status = 'failed', error = 'x' WHERE video_id = 'new'")
        pg.sql("UPDATE transcription_jobs SET status = 'queued' WHERE video_id = 'new'")
        pg.sql("DELETE FROM transcription_jobs WHERE video_id = 'new'")
        assert pg.sql("SELECT count(*) FROM transcription_jobs") == [(3,)]
        # The old table is no way around the policies of the view.
        assert "permission denied" in pg.refused("SELECT FROM transcription_jobs_before_onerow")
        pg.sql("RESET ROLE")
        undo(pg.store, pg.store.old_table(mapping))
        pg.sql(f"SET ROLE {role}")
        pg.sql("INSERT INTO transcription_jobs (video_id) VALUES ('newer')")
        assert pg.sql("SELECT count(*) FROM transcription_jobs") == [(4,)]
    finally:
        pg.sql("RESET ROLE")
        pg.sql(f"DROP OWNED BY {role}")
        pg.sql(f"DROP ROLE {role}")


def test_a_role_can_not_use_the_capture_for_itself(pg: Database) -> None:
    mapping, _ = _ready(pg, 3)
    pg.store.old_table(mapping).start()
    role = new_name("tenant_")
    pg.sql(f"CREATE ROLE {role}")
    try:
        pg.sql(f"GRANT USAGE ON SCHEMA onerow TO {role}")
        pg.sql(f"SET ROLE {role}")
        pg.sql("CREATE TEMP TABLE own (id text)")
        said = pg.refused(
            "CREATE TRIGGER t AFTER INSERT ON own FOR EACH ROW EXECUTE FUNCTION onerow.adopt_transcription_jobs()"
        )
        assert "permission denied for function" in said
        assert "permission denied" in pg.refused("SELECT FROM onerow.adopt_transcription_jobs")
    finally:
        pg.sql("RESET ROLE")
        pg.sql(f"DROP OWNED BY {role}")
        pg.sql(f"DROP ROLE {role}")


def test_a_program_in_a_long_transaction_delays_the_swap_but_is_not_blocked(pg: Database) -> None:
    mapping, _ = _ready(pg, 3)
    with psycopg.connect(pg.url) as program:
        program.execute("INSERT INTO transcription_jobs (video_id) VALUES ('long')")

        def end(seconds: float) -> None:
            program.execute("SELECT count(*) FROM transcription_jobs")  # it is not stuck behind the waiting lock
            program.commit()

        Adoption(pg.store, pg.store.old_table(mapping), wait=end).run()
    assert pg.sql("SELECT status FROM transcription_jobs WHERE video_id = 'long'") == [("queued",)]


def test_the_commands(db: Database, tmp_path: Any) -> None:
    group = "pg" if db.kind == "postgres" else "sqlite"
    mapping, _ = _ready(db, 3)
    file = tmp_path / "매핑.toml"
    columns = "\n".join(f'{name} = "{field}"' for name, field in _columns(db).items())
    words = "\n".join(f'{word} = "{status}"' for word, status in mapping.statuses.items())
    file.write_text(
        f'table = "transcription_jobs"\npipeline = "transcribe"\nphase = "transcribe"\nunique = ["video_id"]\n[columns]\n{columns}\n[statuses]\n{words}\n',
        encoding="utf-8",
    )

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, [group, *words, "--store", db.url])
        assert result.exit_code == code, result.output
        return result.output

    adopt_it = ("adopt", "transcription_jobs", "--mapping", str(file))
    assert "nothing was changed" in run(*adopt_it, "--dry-run")
    assert "3 rows verified" in run(*adopt_it)
    assert "is adopted already" in run(*adopt_it, code=64)
    assert "transcribe" in run("view", "--list")
    assert "has its name back" in run(*adopt_it, "--undo")
    assert "there is a table transcription_jobs already" in run(
        "view", "transcription_jobs", "--mapping", str(file), code=64
    )
    options = (
        "--pipeline",
        "transcribe",
        "--columns",
        "id=task_id,state=status",
        "--statuses",
        "new=waiting,busy=processing,done=completed,bad=failed,off=cancelled",
    )
    assert "CREATE VIEW" in run("view", "work", *options, "--sql")
    assert "created" in run("view", "work", *options)
    assert db.sql("SELECT count(*) FROM work") == [(0,)]
    assert "dropped" in run("view", "work", "--drop")
    assert "no phase 'nope'" in run(
        "view",
        "work",
        *options[:-1],
        "new=waiting,odd=waiting/nope,busy=processing,done=completed,bad=failed,off=cancelled",
        code=64,
    )
    assert "no pipeline 'nope'" in run("view", "work", "--pipeline", "nope", *options[2:], code=64)
    assert "[columns]" in run("adopt", "--example", "jobs")
    assert "no example" in run("adopt", "--example", "job", code=64)
    assert "can't be read" in run("adopt", "transcription_jobs", "--mapping", str(tmp_path / "none.toml"), code=64)
