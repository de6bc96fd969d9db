"""Row-level security with real roles, and what goes along with a deleted post or account."""

from typing import Any

import psycopg
import pytest
from psycopg import sql

from ai_tagger.database import READABLE, add_member, remove_member, set_up
from ai_tagger.offline.model_server import ModelServer
from ai_tagger.report import report
from ai_tagger.settings import Settings
from apps.ai_tagger.tests.kit import Desk, a_post, until
from onerow import BadInput
from tests.engine.kit import everything, working
from tests.runner.seeded import new_name

TABLES = [*READABLE, "ai_tag_queue"]
MINE = {"workspace": "gym", "account": "헬스장"}


@pytest.mark.contract("Row-level security: workspace members read (`is_workspace_member`).")
def test_members_read_the_rows_of_their_workspaces_and_no_others(desk: Desk) -> None:
    desk.sync(a_post(1), a_post(2), a_post(3, **MINE))
    desk.work()
    gym = desk.member("gym")
    for url, posts in ((desk.member("cafe"), 2), (gym, 1)):
        assert desk.sql("SELECT count(*) FROM workspace_threads_posts", url=url) == [(posts,)]
        assert desk.sql("SELECT count(*) FROM ai_tag_queue", url=url) == [(posts,)]
        assert desk.sql("SELECT count(*) FROM llm_usage_logs", url=url) == [(1,)]
        assert len(desk.sql("SELECT * FROM workspace_threads_accounts", url=url)) == 1
    assert desk.sql("SELECT name, is_workspace_member(id) FROM workspaces", url=gym) == [("gym", True)]
    assert [each.account for each in report(Settings(database_url=gym)).accounts] == ["헬스장"]
    assert len(report(desk.settings).accounts) == 2


@pytest.mark.contract("It is tested with real roles, across tenants.")
def test_the_login_of_another_tenant_sees_no_row_of_any_table(desk: Desk) -> None:
    desk.sync(a_post(1), a_post(2, **MINE))
    desk.work()
    stranger = desk.member("empty")
    role = "SELECT rolcanlogin, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
    assert desk.sql(role, url=stranger) == [(True, False, False)]
    assert desk.sql("SELECT name FROM workspaces", url=stranger) == [("empty",)]
    for table in ("workspace_threads_accounts", "workspace_threads_posts", "ai_tag_queue", "llm_usage_logs"):
        assert desk.sql(f"SELECT count(*) FROM {table}", url=stranger) == [(0,)]
        assert desk.sql(f"SELECT count(*) > 0 FROM {table}") == [(True,)]


@pytest.mark.contract("Only the service role writes.")
@pytest.mark.parametrize("table", TABLES)
def test_members_write_nothing(desk: Desk, table: str) -> None:
    desk.sync(a_post(1, **MINE))
    member = desk.member("gym")
    assert "permission denied" in desk.refused(f"DELETE FROM {table}", url=member)
    column = {"ai_tag_queue": "status", "llm_usage_logs": "model", "workspace_members": "member"}.get(table, "id")
    assert "permission denied" in desk.refused(f"UPDATE {table} SET {column} = {column}", url=member)
    assert "permission denied" in desk.refused(f"INSERT INTO {table} DEFAULT VALUES", url=member)
    assert "permission denied" in desk.refused("UPDATE onerow.task_queue SET priority = 1", url=member)


@pytest.mark.contract("It is FORCEd.")
def test_row_level_security_is_forced_on_every_table(desk: Desk) -> None:
    forced = desk.sql(
        "SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity AND relname = ANY (%s)",
        [*READABLE, "task_queue", "onerow_log", "onerow_note"],
    )
    assert {name for (name,) in forced} == {*READABLE, "task_queue", "onerow_log", "onerow_note"}
    store: Any = desk.queue.store
    assert [finding.what for finding in store.check_policies() if finding.level != "good"] == []


def test_a_role_that_is_created_anew_under_the_same_name_reads_nothing(desk: Desk) -> None:
    desk.sync(a_post(1, **MINE))
    name, other = new_name("Ann "), new_name("박 ")
    owner = Settings(database_url=desk.owner_url, members_role=desk.settings.members_role)

    def posts(role: str) -> int:
        with psycopg.connect(desk.owner_url) as connection:
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            return connection.execute("SELECT FROM workspace_threads_posts").rowcount

    def run(statement: str, *names: str) -> None:
        with psycopg.connect(desk.owner_url) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    run("CREATE ROLE {}", name)
    add_member(owner, name, "gym")
    assert posts(name) == 1
    run("ALTER ROLE {} RENAME TO {}", name, other)
    assert posts(other) == 1
    run("DROP ROLE {}", other)
    run("CREATE ROLE {}", other)
    add_member(owner, other, "cafe")
    assert posts(other) == 0
    add_member(owner, other, "gym")
    assert posts(other) == 1
    remove_member(owner, other, "gym")
    assert posts(other) == 0
    with pytest.raises(BadInput, match="no member"):
        remove_member(owner, other, "gym")
    run("DROP ROLE {}", other)


def test_set_up_again_changes_nothing(desk: Desk) -> None:
    desk.sync(a_post(1, **MINE))
    member = desk.member("gym")
    owner = Settings(
        database_url=desk.owner_url, members_role=desk.settings.members_role, service_role=desk.settings.service_role
    )
    set_up(owner)
    assert desk.sql("SELECT count(*) FROM ai_tag_queue", url=member) == [(1,)]
    assert len(desk.queue.store.attachments()) == 2  # type: ignore[attr-defined]
    desk.work()
    assert desk.tags() == {"t1": ["food"]}


@pytest.mark.contract("Deleting an account takes its jobs along.")
def test_a_deleted_account_takes_its_jobs_along(desk: Desk) -> None:
    desk.sync(a_post(1), a_post(2), a_post(3, **MINE))
    desk.work(phases=())
    desk.sync(a_post(4), a_post(5, **MINE))
    desk.sql("DELETE FROM workspace_threads_accounts WHERE name = '카페 ☕'")
    assert [job[0] for job in desk.jobs()] == ["completed", "pending"]
    assert desk.sql("SELECT count(*), count(workspace_threads_account_id), sum(posts) FROM llm_usage_logs") == [
        (2, 1, 3)
    ]
    desk.sql("DELETE FROM workspaces WHERE name = 'gym'")
    assert desk.jobs() == []


@pytest.mark.contract("Deleting a post takes its jobs along.")
def test_a_deleted_post_takes_its_jobs_along(desk: Desk) -> None:
    gone, _ = desk.sync(a_post(1), a_post(2))
    desk.sql("DELETE FROM workspace_threads_posts WHERE id = %s", gone)
    assert len(desk.jobs()) == 1
    desk.work()
    assert desk.tags() == {"t2": ["food"]}


@pytest.mark.contract("A cascade deletes running jobs silently: the work must be stopped.")
def test_a_deleted_post_stops_its_running_job_and_the_others_of_the_batch_go_on(desk: Desk, model: ModelServer) -> None:
    model.usual = model.waiting
    gone, _ = desk.sync(a_post(1), a_post(2))
    with working(desk.queue):
        until(lambda: model.calls, "the call")
        desk.sql("DELETE FROM workspace_threads_posts WHERE id = %s", gone)
        until(lambda: "cancelled" in {task.status for task in everything(desk.queue)}, "the stop")
        model.released.set()
        until(desk.all_ended, "the end")
    assert sorted(task.status for task in everything(desk.queue)) == ["cancelled", "completed"]
    assert desk.tags() == {"t2": ["food"]}


def test_a_deleted_account_stops_a_call_that_is_only_for_it(desk: Desk, model: ModelServer) -> None:
    model.usual = model.waiting
    desk.sync(a_post(1), a_post(2))
    with working(desk.queue):
        until(lambda: model.calls, "the call")
        desk.sql("DELETE FROM workspace_threads_accounts")
        until(desk.all_ended, "the stop, although the model has not answered")
    assert {task.status for task in everything(desk.queue)} == {"cancelled"}
    assert desk.sql("SELECT * FROM llm_usage_logs") == []
