"""An adoption that is killed with SIGKILL at some point, and run again: no row is lost, doubled or changed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.tables import old_tables
from tests.tables.kit import Database, pipeline

ROWS = 1300
COLUMNS = "id, video_id, title, status, transcript_path"

MAPPING = """
table = "transcription_jobs"
pipeline = "transcribe"
phase = "transcribe"
unique = ["video_id"]
[columns]
id = "task_id"
video_id = "payload.video_id"
url = "payload.url"
title = "title"
engine = "payload.engine"
status = "status"
error = "error"
retry_count = "retry_count"
transcript_path = "results.transcribe.transcript_path"
summary = "results.transcribe.summary"
created_at = "created_at:datetime"
updated_at = "updated_at:datetime"
[statuses]
queued = "waiting"
running = "processing"
completed = "completed"
failed = "failed"
cancelled = "cancelled"
"""


def _cursor(db: Database) -> Any:
    """How far the copy has come, as the note of the adoption says."""
    notes = "onerow.onerow_note" if db.kind == "postgres" else "onerow_note"
    found = db.sql(f"SELECT body FROM {notes} WHERE kind = 'adoption'")
    return found[0][0] if found else None


def _has(db: Database, text: str) -> bool:
    body = str(_cursor(db)).replace('": ', '":').replace("'", '"').replace(": ", ":")
    return text in body


POINTS: dict[str, Callable[[Database], bool]] = {
    "at the beginning": lambda db: _captures(db),
    "while rows are copied": lambda db: _cursor(db) is not None and not _has(db, '"cursor":null') and not _has(db, '"cursor":None'),
    "while rows are compared": lambda db: _has(db, '"copied":true') or _has(db, '"copied":True'),
}  # fmt: skip


def _captures(db: Database) -> bool:
    if db.kind == "postgres":
        return bool(db.sql("SELECT 1 FROM pg_trigger WHERE tgname = 'onerow_adopt'"))
    return bool(db.sql("SELECT 1 FROM sqlite_master WHERE name = 'onerow_adopt_transcription_jobs'"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mapping.toml"
    path.write_text(MAPPING, encoding="utf-8")
    return path


def _start(db: Database, file: Path) -> "subprocess.Popen[str]":
    group = "pg" if db.kind == "postgres" else "sqlite"
    words = [group, "adopt", "transcription_jobs", "--mapping", str(file), "--store", db.url]
    return subprocess.Popen(
        [sys.executable, "-m", "onerow", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _fill(db: Database) -> list[tuple[Any, ...]]:
    db.queue(pipeline("transcribe", "transcribe"))
    script = old_tables.SQLITE_JOBS
    if db.kind == "postgres":
        script = script.replace("INTEGER PRIMARY KEY AUTOINCREMENT", "bigserial PRIMARY KEY")
        script = script.replace("TEXT DEFAULT CURRENT_TIMESTAMP", "timestamp DEFAULT now()")
    old_tables.make(db, script)
    numbers = (
        "generate_series(1, ?) AS n"
        if db.kind == "postgres"
        else "(WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?) SELECT n FROM c)"
    )
    db.sql(
        "INSERT INTO transcription_jobs (video_id, title, status, transcript_path) SELECT 'v' || n, '제목 ' || n, "
        f"CASE n % 3 WHEN 0 THEN 'queued' WHEN 1 THEN 'completed' ELSE 'failed' END, CASE WHEN n % 3 = 1 THEN '/t' END FROM {numbers}",
        ROWS,
    )
    return db.sql(f"SELECT {COLUMNS} FROM transcription_jobs ORDER BY id")


def _until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("point", POINTS)
def test_it_resumes_after_a_kill(db: Database, file: Path, point: str) -> None:
    rows = _fill(db)
    first = _start(db, file)
    try:
        _until(lambda: POINTS[point](db), first)
        os.kill(first.pid, signal.SIGKILL)
    finally:
        first.communicate()
    # The table is in place, and programs go on with it.
    assert db.sql(f"SELECT {COLUMNS} FROM transcription_jobs ORDER BY id") == rows
    db.sql("INSERT INTO transcription_jobs (video_id, title) VALUES ('later', '늦게')")
    db.sql("UPDATE transcription_jobs SET title = '바뀜' WHERE id = 2")
    db.sql("DELETE FROM transcription_jobs WHERE id = 1")
    expected = db.sql(f"SELECT {COLUMNS} FROM transcription_jobs ORDER BY id")
    again = _start(db, file)
    output = again.communicate(timeout=900)[0]
    assert again.returncode == 0, output
    assert db.sql(f"SELECT {COLUMNS} FROM transcription_jobs ORDER BY id") == expected
    assert db.sql("SELECT count(*) FROM transcription_jobs_before_onerow") == [(ROWS,)]
    assert all(finding.level == "good" for finding in db.store.inspect())
    assert len(db.queue().claim("transcribe", limit=3)) == 3  # the pause is over


def test_a_kill_while_it_waits_for_the_lock_changes_nothing(pg: Database, file: Path) -> None:
    rows = _fill(pg)
    with psycopg.connect(pg.url) as program:
        program.execute("SELECT 1 FROM transcription_jobs LIMIT 1")  # holds a lock until its transaction ends
        first = _start(pg, file)
        try:
            asks = (
                "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LOCK TABLE %' AND wait_event_type = 'Lock' "
                "AND datname = current_database()"
            )
            _until(lambda: bool(pg.sql(asks)), first)
            os.kill(first.pid, signal.SIGKILL)
        finally:
            first.communicate()
        program.rollback()
    assert pg.sql(f"SELECT {COLUMNS} FROM transcription_jobs ORDER BY id") == rows
    again = _start(pg, file)
    output = again.communicate(timeout=900)[0]
    assert again.returncode == 0, output
    assert pg.sql(f"SELECT {COLUMNS} FROM transcription_jobs ORDER BY id") == rows
