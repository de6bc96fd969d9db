"""The view ai_tag_queue: columns, words, statements, indexes, and the rights of its user."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from ai_tagger.jobs import tagging
from ai_tagger.offline.model_server import ModelServer, Request
from apps.ai_tagger.tests.kit import Desk, a_post, until
from tests.engine.kit import everything, working

INSERT = "INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) SELECT workspace_threads_account_id, id FROM workspace_threads_posts"


@pytest.mark.contract(
    "`ai_tag_queue` has the columns id UUID, workspace_threads_account_id, post_id, status 'pending', attempts, "
    "max_attempts 3, error_message, created_at, started_at, completed_at."
)
def test_the_columns_and_their_defaults(desk: Desk) -> None:
    (post,) = desk.sync(a_post())
    columns = desk.sql(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'ai_tag_queue' ORDER BY ordinal_position"
    )
    time = "timestamp with time zone"
    assert columns == [
        ("id", "uuid"), ("workspace_threads_account_id", "uuid"), ("post_id", "uuid"), ("status", "text"),
        ("attempts", "integer"), ("max_attempts", "integer"), ("error_message", "text"), ("created_at", time),
        ("started_at", time), ("completed_at", time),
    ]  # fmt: skip
    ((job, account, post_id, *rest, created, started, completed),) = desk.sql("SELECT * FROM ai_tag_queue")
    assert isinstance(job, UUID)
    assert [(account,)] == desk.sql("SELECT id FROM workspace_threads_accounts")
    assert (str(post_id), rest) == (post, ["pending", 0, 3, None])
    assert created is not None
    assert (started, completed) == (None, None)


@pytest.mark.contract("Its words are pending, processing, completed, failed.")
def test_the_words_of_the_statuses(desk: Desk, model: ModelServer) -> None:
    desk.sync(a_post(1), a_post(2, text="bad"))

    def wait_and_answer(request: Request) -> None:
        model.released.wait(900)
        request.complete(
            {
                "posts": [
                    {"id": number, "tags": ["none" if text == "bad" else "food"]}
                    for number, text in enumerate(request.texts, 1)
                ]
            }
        )

    model.usual = wait_and_answer
    seen = {status for status, _, _ in desk.jobs()}
    with working(desk.queue):
        until(lambda: model.calls, "the call")
        seen |= {status for status, _, _ in desk.jobs()}
        model.released.set()
        until(desk.all_ended, "the end")
    seen |= {status for status, _, _ in desk.jobs()}
    assert seen == {"pending", "processing", "completed", "failed"}


@pytest.mark.contract("It is readable and insertable.")
def test_it_is_readable_and_insertable(desk: Desk) -> None:
    desk.sync(a_post())
    desk.work()
    desk.sql(INSERT)
    assert [job[0] for job in desk.jobs()] == ["completed", "pending"]
    desk.work()
    assert [job[0] for job in desk.jobs()] == ["completed", "completed"]


@pytest.mark.contract("Account = user_id.")
def test_the_account_of_a_job_is_its_user(desk: Desk) -> None:
    desk.sync(a_post(1), a_post(2, workspace="gym", account="헬스장"))
    desk.sql("UPDATE ai_tag_queue SET status = 'failed', error_message = 'no'")
    desk.sql(INSERT)
    accounts = [account for (account,) in desk.sql("SELECT id::text FROM workspace_threads_accounts")]
    assert sorted(task.user_id for task in everything(desk.queue)) == sorted(accounts * 2)
    assert sorted(desk.sql("SELECT workspace_threads_account_id::text FROM ai_tag_queue")) == sorted(
        [(account,) for account in accounts * 2]
    )


@pytest.mark.contract("Its UPDATEs of status are legal moves (others raise and name the command).")
def test_updates_of_the_status_are_legal_moves(desk: Desk) -> None:
    desk.sync(a_post())
    assert "queue.claim" in desk.refused("UPDATE ai_tag_queue SET status = 'processing', attempts = attempts + 1")
    assert "onerow finish" in desk.refused("UPDATE ai_tag_queue SET status = 'completed', completed_at = now()")
    assert desk.jobs() == [("pending", 0, None)]
    desk.sql("UPDATE ai_tag_queue SET status = 'failed', error_message = '글이 이상하다'")
    assert desk.jobs() == [("failed", 0, "글이 이상하다")]
    desk.sql("UPDATE ai_tag_queue SET status = 'pending'")
    desk.work()
    assert desk.jobs()[0][0] == "completed"
    assert "onerow replay" in desk.refused("UPDATE ai_tag_queue SET status = 'pending'")


@pytest.mark.contract("Its DELETE is a cancel or a purge.")
def test_delete_purges_what_does_not_run_and_cancels_what_runs(desk: Desk) -> None:
    desk.sync(a_post(1), a_post(2))
    with desk.queue.claim(tagging) as (lease,):
        desk.sql("DELETE FROM ai_tag_queue")
        (running,) = everything(desk.queue)
        assert running.task_id == lease.task.task_id
        assert running.cancel_requested
        lease.complete()
    assert [task.status for task in everything(desk.queue)] == ["cancelled"]


@pytest.mark.contract("It is a view over the engine's table with INSTEAD OF triggers, `WITH (security_invoker=true)`.")
def test_it_is_a_view_with_triggers_and_the_rights_of_its_user(desk: Desk) -> None:
    ((kind, options),) = desk.sql("SELECT relkind, reloptions FROM pg_class WHERE oid = 'ai_tag_queue'::regclass")
    assert kind in ("v", b"v")
    assert "security_invoker=true" in options
    timing = desk.sql(
        "SELECT action_timing, event_manipulation FROM information_schema.triggers WHERE event_object_table = 'ai_tag_queue'",
        url=desk.owner_url,
    )
    assert set(timing) == {("INSTEAD OF", event) for event in ("INSERT", "UPDATE", "DELETE")}
    ((definition,),) = desk.sql("SELECT pg_get_viewdef('ai_tag_queue'::regclass)")
    assert "onerow.task_queue" in definition


@pytest.mark.contract("A plain view shows every tenant's rows; this one shows those of the member.")
def test_a_plain_view_would_show_the_rows_of_every_tenant(desk: Desk) -> None:
    desk.sync(a_post(1), a_post(2, workspace="gym", account="gym"))
    member = desk.member("gym")
    assert desk.sql("SELECT count(*) FROM ai_tag_queue", url=member) == [(1,)]
    desk.sql("CREATE VIEW plain AS SELECT * FROM onerow.task_queue", url=desk.owner_url)
    desk.sql("GRANT SELECT ON plain TO PUBLIC", url=desk.owner_url)
    assert desk.sql("SELECT count(*) FROM plain", url=member) == [(2,)]
    assert any("plain" in finding.what for finding in _policies(desk) if finding.level != "good")


@pytest.mark.contract("Equivalents of both indexes.")
def test_the_statements_by_status_and_by_account_use_an_index(desk: Desk) -> None:
    desk.sync(a_post())
    for condition, order in (
        ("status = 'pending'", "ORDER BY created_at LIMIT 10"),
        ("workspace_threads_account_id = gen_random_uuid()", ""),
        ("workspace_threads_account_id = '5f0c6f0e-6f0b-4a55-9a4e-2f2f8f4f9d01'", ""),
    ):
        with psycopg.connect(desk.owner_url) as connection:
            connection.execute("SET enable_seqscan = off")
            rows = connection.execute(f"EXPLAIN SELECT * FROM ai_tag_queue WHERE {condition} {order}").fetchall()
        plan = "\n".join(line for (line,) in rows)
        if "gen_random" not in condition:  # a volatile value has no index
            assert "task_view_" in plan, plan


@pytest.mark.contract("One job per post.")
def test_a_post_has_one_open_job(desk: Desk) -> None:
    desk.sync(a_post())
    desk.sql(INSERT)
    desk.sync(a_post(text="The soup is even better today."))
    assert [job[0] for job in desk.jobs()] == ["pending"]


@pytest.mark.contract("UNIQUE(post_id) for ever blocks tagging again.")
def test_after_the_end_of_its_job_a_post_gets_another(desk: Desk) -> None:
    desk.sync(a_post())
    desk.work()
    desk.sql(INSERT)
    assert [job[0] for job in desk.jobs()] == ["completed", "pending"]


@pytest.mark.contract("Batches of 10, oldest first, SKIP LOCKED.")
def test_batches_of_ten_oldest_first_past_locked_rows(desk: Desk, model: ModelServer) -> None:
    for number in range(13):
        desk.sync(a_post(number, text=f"delicious soup {number}"))
    with psycopg.connect(desk.owner_url) as other:
        other.execute("SELECT FROM onerow.task_queue ORDER BY created_at, task_id LIMIT 1 FOR UPDATE")
        desk.work()  # neither waits for the locked row nor stops at it
        assert [len(call) for call in model.calls] == [10, 2]
        assert model.calls[0] == [f"delicious soup {number}" for number in range(1, 11)]
    desk.work()
    assert model.calls[2] == ["delicious soup 0"]


@pytest.mark.contract("No CHECK on status.")
def test_a_status_that_does_not_exist_is_refused_by_the_view_and_by_the_table(desk: Desk) -> None:
    desk.sync(a_post())
    assert "pending, processing, completed, failed" in desk.refused("UPDATE ai_tag_queue SET status = 'done'")
    assert "violates check constraint" in desk.refused(
        "UPDATE onerow.task_queue SET status = 'done'", url=desk.owner_url
    )


def _policies(desk: Desk) -> list[Any]:
    store: Any = desk.queue.store
    return list(store.check_policies())
