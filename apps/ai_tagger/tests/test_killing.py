"""Real processes, killed with kill -9 at every point of their work."""

import os
import signal
import subprocess
import sys
from collections import Counter
from typing import NamedTuple

import pytest

from apps.ai_tagger.tests.kit import PATIENCE, ROOT, Desk, a_desk, a_model, a_post, until
from tests.engine.kit import everything
from tests.servers.postgres import Databases

# Point → number of posts in the batch, and how often the model is asked for each: it can't tell a repeated question.
POINTS = {
    "claimed, nothing read": (1, 1),
    "asked, nothing recorded": (2, 2),
    "recorded, not settled": (1, 1),
    "settled, not written": (1, 1),
}


class Killed(NamedTuple):
    """What is in the database after the kill, and what the model was asked."""

    point: str
    statuses: set[str]
    jobs: int
    tags: dict[str, list[str] | None]
    asked: Counter[str]
    logged: int  # posts in the usage log
    retried: int
    rescued: dict[str, list[str]]  # the attempts of each post that a worker's death ended, by its id
    said: str


@pytest.fixture(
    scope="module", params=[pytest.param(point, marks=pytest.mark.xdist_group(f"tagger, {point}")) for point in POINTS]
)
def killed(
    request: pytest.FixtureRequest,
    postgres_server: Databases,
    prepared: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Killed:
    """A worker that is killed at a point; its supervisor starts another. Both tests look at one run."""
    point: str = request.param
    count, _ = POINTS[point]
    kill_file = tmp_path_factory.mktemp("killed") / "kill"
    with a_desk(postgres_server, prepared) as desk, a_model() as model:
        worker = subprocess.Popen(
            [sys.executable, "-m", "onerow", "worker", "apps.ai_tagger.tests.killed_app", "--interval", "100ms"],
            cwd=ROOT, env={**os.environ, "KILL_FILE": str(kill_file), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            kill_file.write_text(point)
            desk.sync(*(a_post(n, id=str(n), text=f"delicious soup {n}") for n in range(count)))
            until(lambda: not kill_file.exists(), f"the death at: {point}", PATIENCE * 2)
            until(desk.all_ended, f"the end after: {point}", PATIENCE * 2)
        finally:
            worker.send_signal(signal.SIGTERM)
            _, said = worker.communicate(timeout=PATIENCE)
        names = dict(desk.sql("SELECT id::text, threads_id FROM workspace_threads_posts"))
        rescued = {
            names[task.payload["post_id"]]: [entry.phase for entry in task.history if entry.what == "rescued"]
            for task in everything(desk.queue)
        }
        ((logged,),) = desk.sql("SELECT sum(posts) FROM llm_usage_logs")
        ((retried,),) = desk.sql("SELECT count(*) FROM onerow.task_queue WHERE retry_count > 0")
        asked = Counter(text for call in model.calls for text in call)
        jobs = desk.jobs()
        return Killed(point, {job[0] for job in jobs}, len(jobs), desk.tags(), asked, logged, retried, rescued, said)


@pytest.mark.faults
@pytest.mark.contract("kill -9 of the worker in every phase loses nothing, and tags and logs nothing twice.")
def test_kill_9_at_any_point_loses_nothing_and_records_nothing_twice(killed: Killed) -> None:
    assert killed.statuses == {"completed"}, killed.said
    posts, times = POINTS[killed.point]
    assert killed.jobs == len(killed.tags) == posts
    assert set(map(str, killed.tags.values())) == {"['food']"}
    assert killed.asked == {f"delicious soup {n}": times for n in range(posts)}
    assert killed.logged == posts


@pytest.mark.faults
@pytest.mark.contract("No lease: a killed function orphans ten.")
def test_the_jobs_of_a_killed_worker_are_taken_back_and_cost_no_retry(killed: Killed) -> None:
    if killed.point != "settled, not written":
        posts, _ = POINTS[killed.point]
        assert {name: len(rescues) for name, rescues in killed.rescued.items()} == {str(n): 1 for n in range(posts)}
    assert killed.retried == 0


@pytest.mark.faults
@pytest.mark.contract("kill -9 of a sync leaves all of its posts and jobs, or none.")
@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_9_of_a_sync_leaves_nothing_half_written(desk: Desk, when: str) -> None:
    line = '{"workspace": "w", "account": "a", "id": "1", "text": "맛있는 요리"}'
    killed = subprocess.run(
        [sys.executable, "-m", "apps.ai_tagger.tests.killed_sync", "sync"],
        cwd=ROOT, env={**os.environ, "KILL_AT": when, "PYTHONPATH": str(ROOT)}, input=line, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    assert (desk.tags(), desk.jobs()) == ({}, [])
    assert desk.run("sync", stdin=line).exit_code == 0
    assert (desk.tags(), desk.jobs()) == ({"1": None}, [("pending", 0, None)])
