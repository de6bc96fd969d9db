"""Jobs of several ages, and one worker that purges them: what is left."""

from typing import NamedTuple

import pytest

from apps.ai_tagger.tests.kit import a_desk, a_post
from tests.servers.postgres import Databases

pytestmark = pytest.mark.xdist_group("tagger, purging")
AGED = (
    "UPDATE onerow.task_queue SET completed_at = now() - %s::interval WHERE payload->>'post_id' = "
    "(SELECT id::text FROM workspace_threads_posts WHERE threads_id = %s)"
)


class Left(NamedTuple):
    """The status of the job of each post that still has one, and the tags of all posts."""

    jobs: dict[str, str]
    tags: dict[str, list[str] | None]


@pytest.fixture(scope="module")
def left(postgres_server: Databases, prepared: str) -> Left:
    """t1, t2 and t3 completed, t4 failed; t2 and t4 are older than seven days."""
    with a_desk(postgres_server, prepared) as desk:
        desk.sync(a_post(1), a_post(2), a_post(3))
        desk.work()
        desk.sync(a_post(4))
        desk.sql("UPDATE ai_tag_queue SET status = 'failed', error_message = 'no' WHERE status = 'pending'")
        for age, post in (("6 days 23 hours", "t1"), ("7 days 1 hour", "t2"), ("400 days", "t4")):
            desk.sql(AGED, age, post, url=desk.owner_url)
        desk.work_until(lambda: len(desk.jobs()) == 3, "the purge")
        jobs = desk.sql(
            "SELECT p.threads_id, q.status FROM ai_tag_queue AS q JOIN workspace_threads_posts AS p ON p.id = q.post_id"
        )
        return Left(dict(jobs), desk.tags())


@pytest.mark.contract("Completed jobs are purged after 7 days.")
def test_completed_jobs_are_purged_after_seven_days_and_not_before(left: Left) -> None:
    completed = {post for post, status in left.jobs.items() if status == "completed"}
    assert completed == {"t1", "t3"}
    assert left.tags["t2"] == ["food"]  # the tags stay


@pytest.mark.contract("Failed jobs are kept.")
def test_failed_jobs_are_kept_however_old_they_are(left: Left) -> None:
    assert left.jobs["t4"] == "failed"
