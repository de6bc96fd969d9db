"""The view ai_tag_queue on PostgreSQL: the statements of a tagging service, its roles and its query plans."""

import re
from contextlib import AbstractContextManager
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from onerow.core.filters import Filter
from onerow.sql_ports import PolicySettings
from onerow.stores.postgres.views import functions
from tests.runner.seeded import new_name
from tests.tables.kit import ACCOUNT, POST, Database, database, pipeline, shipped

tagging = pipeline("tagging", "tag")


@pytest.fixture
def tags(pg: Database) -> Database:
    """The view, with one waiting job of POST."""
    pg.queue(tagging)
    pg.store.create_view(shipped("ai_tag_queue"))
    pg.sql("INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) VALUES (?, ?)", ACCOUNT, POST)
    return pg


def test_a_new_row_is_a_waiting_task_in_the_words_of_the_table(tags: Database) -> None:
    ((account, post, status, attempts, error),) = tags.sql(
        "SELECT workspace_threads_account_id, post_id, status, attempts, error_message FROM ai_tag_queue"
    )
    assert (str(account), str(post), status, attempts, error) == (ACCOUNT, POST, "pending", 0, None)
    (task,) = tags.store.find(Filter()).tasks
    assert (task.pipeline, task.phase, task.user_id, task.payload) == ("tagging", "tag", ACCOUNT, {"post_id": POST})


def test_one_open_job_per_post_and_a_new_one_after_it_has_ended(tags: Database) -> None:
    again = "INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) VALUES (?, ?) RETURNING id"
    assert tags.sql(again, ACCOUNT, POST) == []
    assert tags.sql(f"{again.removesuffix(' RETURNING id')} ON CONFLICT DO NOTHING RETURNING id", ACCOUNT, POST) == []
    tags.sql("UPDATE ai_tag_queue SET status = 'failed'")
    assert len(tags.sql(again, ACCOUNT, POST)) == 1
    assert "another task holds its unique key" in tags.refused(
        "UPDATE ai_tag_queue SET status = 'pending' WHERE status = 'failed'"
    )


def test_a_taken_key_is_an_error_if_the_mapping_says_so(pg: Database) -> None:
    pg.queue(tagging)
    pg.store.create_view(shipped("ai_tag_queue", taken="error"))
    insert = "INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) VALUES (?, ?)"
    pg.sql(insert, ACCOUNT, POST)
    with pytest.raises(psycopg.errors.UniqueViolation):
        pg.sql(insert, ACCOUNT, POST)


@pytest.mark.parametrize(
    "statement, named",
    [
        ("UPDATE ai_tag_queue SET status = 'processing', started_at = now(), attempts = attempts + 1 WHERE post_id = ?", "queue.claim"),
        ("UPDATE ai_tag_queue SET status = 'completed', completed_at = now() WHERE post_id = ?", "onerow finish"),
        ("UPDATE ai_tag_queue SET status = 'done' WHERE post_id = ?", "pending, processing, completed, failed"),
        ("UPDATE ai_tag_queue SET attempts = 9 WHERE post_id = ?", "Leave it out"),
        ("UPDATE ai_tag_queue SET post_id = gen_random_uuid() WHERE post_id = ?", "metadata.X"),
        ("INSERT INTO ai_tag_queue (post_id, status) VALUES (?, 'processing')", "queue.claim"),
        ("INSERT INTO ai_tag_queue (post_id, max_attempts) VALUES (?, 5000)", "max_retries"),
        ("INSERT INTO ai_tag_queue (post_id, error_message) VALUES (?, 'x')", "Leave it out"),
    ],
)  # fmt: skip
def test_what_the_rules_do_not_allow_is_refused_and_changes_nothing(tags: Database, statement: str, named: str) -> None:
    before = tags.sql("SELECT * FROM ai_tag_queue")
    assert named in tags.refused(statement, POST)
    assert tags.sql("SELECT * FROM ai_tag_queue") == before


def test_cancelled_is_final_and_completed_names_replay(tags: Database) -> None:
    queue = tags.queue(tagging)
    with queue.claim("tagging") as (lease,):
        lease.complete()
    assert "onerow replay" in tags.refused("UPDATE ai_tag_queue SET status = 'pending'")
    other = queue.add("tagging", {"post_id": str(uuid4())})
    queue.cancel(other.task_id)
    tags.store.create_view(shipped("ai_tag_queue", hidden=[], shown={"cancelled": "failed"}))
    assert "final" in tags.refused(
        "UPDATE ai_tag_queue SET status = 'pending' WHERE id = CAST(? AS uuid)", other.task_id
    )


def test_a_cancelled_task_is_gone_from_the_table_and_does_not_stop_a_retry_of_the_failed_ones(tags: Database) -> None:
    queue = tags.queue(tagging)
    other = queue.add("tagging", {"post_id": str(uuid4())})
    queue.cancel(other.task_id)
    tags.sql("UPDATE ai_tag_queue SET status = 'failed', error_message = 'x' WHERE status = 'pending'")
    assert tags.sql("SELECT status FROM ai_tag_queue") == [("failed",)]
    tags.sql("UPDATE ai_tag_queue SET status = 'pending' WHERE status = 'failed'")
    assert tags.sql("SELECT status FROM ai_tag_queue") == [("pending",)]
    assert tags.store.fetch([other.task_id])[0].status == "cancelled"


def test_delete_removes_what_does_not_run_and_stops_what_runs(tags: Database) -> None:
    queue = tags.queue(tagging)
    with queue.claim("tagging") as (lease,):
        tags.sql("DELETE FROM ai_tag_queue")
        (task,) = tags.store.fetch([lease.task.task_id])
        assert task.cancel_requested
        lease.complete()  # it ends as cancelled
    assert tags.sql("SELECT status FROM ai_tag_queue") == []  # a cancelled task is hidden
    assert [task.status for task in tags.store.find(Filter()).tasks] == ["cancelled"]
    tags.sql("INSERT INTO ai_tag_queue (post_id) VALUES (?)", POST)
    tags.sql("UPDATE ai_tag_queue SET status = 'failed'")
    tags.sql("DELETE FROM ai_tag_queue WHERE status = 'failed' AND completed_at < now() + interval '7 days'")
    assert [task.status for task in tags.store.find(Filter()).tasks] == ["cancelled"]
    assert all(finding.level == "good" for finding in tags.store.inspect())


def test_rows_of_other_pipelines_never_make_a_cast_fail(tags: Database) -> None:
    queue = tags.queue(pipeline("other", "run"))
    queue.add("other", {"post_id": "not a uuid"}, task_id="이것은 uuid가 아닙니다", user_id="사용자")
    queue.add("tagging", {"post_id": 7}, task_id="neither")
    rows = tags.sql("SELECT id, post_id FROM ai_tag_queue WHERE id IS NULL OR post_id = ? ORDER BY id", POST)
    assert [str(post) for _, post in rows] == [POST, "None"]
    casts = {
        "as_uuid": "x",
        "as_int8": "9" * 40,
        "as_int4": "9" * 12,
        "as_float8": "1e999",
        "as_boolean": "ja",
        "as_time": "2026-13-45T00:00",
    }
    for name, bad in casts.items():
        assert tags.sql(f"SELECT onerow.{name}(?)", bad) == [(None,)]
    assert len(casts) == sum("RETURNS" in each and ".as_" in each.partition("(")[0] for each in functions("onerow"))


SEED = {
    "take": "SELECT * FROM ai_tag_queue WHERE status = 'pending' OR (status = 'failed' AND attempts < max_attempts) ORDER BY created_at ASC LIMIT 10 FOR UPDATE SKIP LOCKED",
    "mark processing": f"UPDATE ai_tag_queue SET status = 'processing', started_at = now(), attempts = attempts + 1 WHERE id = '{POST}'",
    "mark completed": f"UPDATE ai_tag_queue SET status = 'completed', completed_at = now() WHERE id = '{POST}'",
    "mark failed": f"UPDATE ai_tag_queue SET status = 'failed', error_message = 'x' WHERE id = '{POST}'",
    "clean up": "DELETE FROM ai_tag_queue WHERE status = 'completed' AND completed_at < now() - INTERVAL '7 days'",
    "of an account": f"SELECT * FROM ai_tag_queue WHERE workspace_threads_account_id = '{ACCOUNT}'",
    "of a post": f"SELECT * FROM ai_tag_queue WHERE post_id = '{POST}'",
}  # fmt: skip


def test_each_statement_of_the_service_uses_an_index(tags: Database) -> None:
    tags.sql(
        "INSERT INTO onerow.task_queue (task_id, pipeline, type, status, user_id, payload, completed_at) "
        "SELECT CAST(gen_random_uuid() AS text), CASE WHEN n % 10 = 0 THEN 'tagging' ELSE 'other' END, 'tag', "
        "CASE WHEN n % 200 = 0 THEN 'waiting' ELSE 'completed' END, CAST(gen_random_uuid() AS text), "
        "json_build_object('post_id', gen_random_uuid()), CASE WHEN n % 200 = 0 THEN NULL ELSE now() END FROM generate_series(1, 20000) AS n"
    )
    tags.sql("ANALYZE onerow.task_queue")
    for name, statement in SEED.items():
        plan = "\n".join(line for (line,) in tags.sql(f"EXPLAIN {statement}"))
        assert re.search(r"Index Scan|Bitmap Index Scan", plan), f"{name}: {plan}"
        assert "Seq Scan" not in plan, f"{name}: {plan}"


def test_the_view_has_the_rights_of_its_user(tags: Database) -> None:
    role = new_name("reader_")
    tags.sql(f"CREATE ROLE {role}")
    try:
        tags.sql(f"GRANT SELECT ON ai_tag_queue TO {role}")
        tags.sql(f"SET ROLE {role}")
        assert "permission denied for table task_queue" in tags.refused("SELECT * FROM ai_tag_queue")
        tags.sql("RESET ROLE")
        tags.sql(f"GRANT USAGE ON SCHEMA onerow TO {role}")
        tags.sql(f"GRANT SELECT ON onerow.task_queue TO {role}")
        tags.sql("ALTER TABLE onerow.task_queue ENABLE ROW LEVEL SECURITY")
        tags.sql(f"CREATE POLICY mine ON onerow.task_queue FOR SELECT TO {role} USING (user_id = '{ACCOUNT}')")
        tags.sql(
            "INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) VALUES (gen_random_uuid(), gen_random_uuid())"
        )
        tags.sql(f"SET ROLE {role}")
        assert [str(account) for (account,) in tags.sql("SELECT workspace_threads_account_id FROM ai_tag_queue")] == [
            ACCOUNT
        ]
        assert "permission denied" in tags.refused("UPDATE ai_tag_queue SET status = 'failed'")
    finally:
        tags.sql("RESET ROLE")
        tags.sql(f"DROP OWNED BY {role}")
        tags.sql(f"DROP ROLE {role}")


def test_creating_it_again_keeps_the_grants_and_dropping_it_keeps_the_tasks(tags: Database) -> None:
    role = new_name("reader_")
    tags.sql(f"CREATE ROLE {role}")
    try:
        tags.sql(f"GRANT SELECT, INSERT ON ai_tag_queue TO {role}")
        tags.store.create_view(shipped("ai_tag_queue", indexes=[["post_id"]]))
        assert tags.sql(f"SELECT has_table_privilege('{role}', 'ai_tag_queue', 'INSERT')") == [(True,)]
        indexes = tags.sql("SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'task_view_%'")
        assert indexes == [(2,)]  # that of the mapping, and that of the id
        assert [view.name for view in tags.store.views()] == ["ai_tag_queue"]
        tags.store.drop_view("ai_tag_queue")
        assert tags.sql("SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'task_view_%'") == [(0,)]
        assert tags.store.views() == []
        assert tags.sql("SELECT count(*) FROM onerow.task_queue") == [(1,)]
    finally:
        tags.sql(f"DROP OWNED BY {role}")
        tags.sql(f"DROP ROLE {role}")


def test_with_row_level_security_members_read_their_rows_and_the_service_writes(tags: Database) -> None:
    service, member = (new_name(role) for role in ("service_", "member_"))
    for role in (service, member):
        tags.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'pass'")
    try:
        settings = PolicySettings(services=[service], tenants=[member], using=f"user_id = '{ACCOUNT}'")
        tags.store.apply_policies(settings)
        tags.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ai_tag_queue TO {service}")
        tags.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ai_tag_queue TO {member}")
        with _as(tags, service) as program:
            other = str(uuid4())
            program.sql("INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) VALUES (?, ?)", other, other)
            program.sql("UPDATE ai_tag_queue SET status = 'failed', error_message = 'x' WHERE post_id = ?", other)
            program.sql("UPDATE ai_tag_queue SET status = 'pending' WHERE post_id = ?", other)
            assert len(program.sql("SELECT * FROM ai_tag_queue")) == 2
        with _as(tags, member) as program:
            assert [str(post) for (post,) in program.sql("SELECT post_id FROM ai_tag_queue")] == [POST]
            assert program.refused("UPDATE ai_tag_queue SET status = 'failed'")
            assert program.refused("DELETE FROM ai_tag_queue")
            assert program.refused(
                "INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) VALUES (?, ?)", ACCOUNT, ACCOUNT
            )
        assert tags.sql("SELECT status, count(*) FROM ai_tag_queue GROUP BY 1") == [("pending", 2)]
        with _as(tags, service) as program:
            program.sql("DELETE FROM ai_tag_queue WHERE post_id = ?", other)
        assert tags.sql("SELECT count(*) FROM onerow.task_queue") == [(1,)]
    finally:
        for role in (service, member):
            tags.sql(f"DROP OWNED BY {role} CASCADE")
            tags.sql(f"DROP ROLE {role}")


def _as(db: Database, role: str) -> AbstractContextManager[Database]:
    parts = urlsplit(db.url)
    address = parts.netloc.rpartition("@")[2]
    return database("postgres", parts._replace(netloc=f"{role}:pass@{address}").geturl())


def test_on_the_oldest_server(postgres_15_url: str) -> None:
    with database("postgres", postgres_15_url) as db:
        db.store.prepare()
        db.queue(tagging)
        db.store.create_view(shipped("ai_tag_queue"))
        db.sql("INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) VALUES (?, ?)", ACCOUNT, POST)
        for word in ("failed", "pending"):
            db.sql("UPDATE ai_tag_queue SET status = ? WHERE post_id = ?", word, POST)
        assert "queue.claim" in db.refused("UPDATE ai_tag_queue SET status = 'processing'")
        db.sql("DELETE FROM ai_tag_queue")
        assert db.sql("SELECT count(*) FROM onerow.task_queue") == [(0,)]
