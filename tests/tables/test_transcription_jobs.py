"""The view transcription_jobs on SQLite: words, flags, paths, refusals and query plans."""

import sqlite3

import pytest

from onerow.core.errors import BadInput
from tests.tables.kit import Database, pipeline, shipped

transcribe = pipeline("transcribe", "transcribe", title="{video_id} 영상")


@pytest.fixture
def jobs(lite: Database) -> Database:
    """The view, with one waiting job."""
    lite.queue(transcribe)
    lite.store.create_view(shipped("transcription_jobs"))
    lite.sql(
        "INSERT INTO transcription_jobs (video_id, url, engine) VALUES ('v1', 'https://youtu.be/v1', 'whisper-cpp')"
    )
    return lite


def test_rows_flags_and_paths(jobs: Database) -> None:
    queue = jobs.queue(transcribe)
    with queue.claim("transcribe") as (lease,):
        lease.remember("download", {"bytes": 5})
        flags = "SELECT status, download_completed, srt_completed, transcript_path FROM transcription_jobs"
        assert jobs.sql(flags) == [("running", 1, 0, None)]
        lease.complete({"transcript_path": "/t/v1.txt", "summary": "요약"})
    shown = jobs.sql("SELECT id, title, status, download_completed, transcript_path, summary FROM transcription_jobs")
    assert shown == [(1, "v1 영상", "completed", 1, "/t/v1.txt", "요약")]


def test_ids_go_on_counting_and_an_open_video_is_taken(jobs: Database) -> None:
    jobs.sql("INSERT INTO transcription_jobs (video_id) VALUES ('v2')")
    jobs.sql("INSERT INTO transcription_jobs (video_id) VALUES ('v1')")  # taken: no second row
    jobs.sql("INSERT INTO transcription_jobs (id, video_id) VALUES (70, 'v3')")
    jobs.sql("INSERT INTO transcription_jobs (video_id) VALUES ('v4')")
    assert [row[0] for row in jobs.sql("SELECT id FROM transcription_jobs ORDER BY id")] == [1, 2, 70, 71]


def test_a_taken_key_is_an_error_if_the_mapping_says_so(lite: Database) -> None:
    lite.queue(transcribe)
    lite.store.create_view(shipped("transcription_jobs", taken="error"))
    lite.sql("INSERT INTO transcription_jobs (video_id) VALUES ('v1')")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        lite.sql("INSERT INTO transcription_jobs (video_id) VALUES ('v1')")
    lite.sql("INSERT OR IGNORE INTO transcription_jobs (video_id) VALUES ('v1')")
    assert lite.sql("SELECT count(*) FROM transcription_jobs") == [(1,)]


@pytest.mark.parametrize(
    "statement, named",
    [
        ("UPDATE transcription_jobs SET status = 'running'", "queue.claim"),
        ("UPDATE transcription_jobs SET status = 'completed'", "onerow finish"),
        ("UPDATE transcription_jobs SET status = 'finished'", "queued, running, completed, failed, cancelled"),
        ("UPDATE transcription_jobs SET retry_count = 2", "leave it out"),
        ("UPDATE transcription_jobs SET transcript_path = '/x'", "onerow keeps"),
        ("UPDATE transcription_jobs SET url = 'x'", "metadata.X"),
        ("INSERT INTO transcription_jobs (video_id, status) VALUES ('v9', 'running')", "queue.claim"),
        ("INSERT INTO transcription_jobs (video_id, srt_completed) VALUES ('v9', 1)", "leave it out"),
        ("INSERT INTO transcription_jobs (id, video_id) VALUES ('a/b', 'v9')", "without /"),
    ],
)  # fmt: skip
def test_what_the_rules_do_not_allow_is_refused_and_changes_nothing(jobs: Database, statement: str, named: str) -> None:
    before = jobs.sql("SELECT * FROM task_queue")
    assert named in jobs.refused(statement)
    assert jobs.sql("SELECT * FROM task_queue") == before


def test_delete_removes_what_does_not_run_and_stops_what_runs(jobs: Database) -> None:
    queue = jobs.queue(transcribe)
    with queue.claim("transcribe") as (lease,):
        jobs.sql("DELETE FROM transcription_jobs WHERE id = 1")
        (task,) = jobs.store.fetch(["1"])
        assert task.cancel_requested
        lease.complete()
    assert jobs.sql("SELECT status FROM transcription_jobs") == [("cancelled",)]
    assert "final" in jobs.refused("UPDATE transcription_jobs SET status = 'queued'")
    jobs.sql("DELETE FROM transcription_jobs WHERE id = 1")
    assert jobs.sql("SELECT count(*) FROM task_queue") == [(0,)]
    assert all(finding.level == "good" for finding in jobs.store.inspect())


@pytest.mark.parametrize("where", ["id = 5", "status = 'queued'", "status = 'failed'", "video_id = 'v5'"])
def test_lookups_use_an_index(jobs: Database, where: str) -> None:
    for statement in (
        f"SELECT * FROM transcription_jobs WHERE {where}",
        f"UPDATE transcription_jobs SET status = 'cancelled' WHERE {where}",
    ):
        plan = jobs.sql(f"EXPLAIN QUERY PLAN {statement}")
        assert any("SEARCH task_queue USING INDEX" in row[3] for row in plan), plan
        assert not any(row[3].startswith("SCAN task_queue") for row in plan), plan


def test_a_pipeline_that_was_never_published_is_named(lite: Database) -> None:
    lite.store.create_view(shipped("transcription_jobs"))
    assert "onerow publish APP" in lite.refused("INSERT INTO transcription_jobs (video_id) VALUES ('v1')")


def test_a_table_of_that_name_is_not_replaced(lite: Database) -> None:
    lite.sql("CREATE TABLE transcription_jobs (id INTEGER PRIMARY KEY)")
    with pytest.raises(BadInput, match="there is a table transcription_jobs already") as caught:
        lite.store.create_view(shipped("transcription_jobs"))
    assert "onerow sqlite adopt transcription_jobs" in caught.value.fix
