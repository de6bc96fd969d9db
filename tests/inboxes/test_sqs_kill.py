"""SIGKILL before and after the row, before and after the delete: no message is lost, none runs twice."""

import subprocess
import sys
from pathlib import Path

import pytest

from onerow import Queue, Status
from onerow.inboxes.sqs import SqsInbox
from tests.engine.kit import everything, until, working
from tests.inboxes.killed_receiver import jobs
from tests.inboxes.test_sqs import Sqs, sqs

pytestmark = pytest.mark.faults
__all__ = ["sqs"]

ROOT = Path(__file__).resolve().parents[2]
POINTS = ["before row", "after row", "before delete", "after delete"]
COUNT = 15


# Each point, and each mode on each store, once; the other combinations are slow.
QUICK = {
    ("sqlite_url", "fast"): "after row",
    ("sqlite_url", "classic"): "before row",
    ("postgres_url", "fast"): "before delete",
    ("postgres_url", "classic"): "after delete",
}


@pytest.mark.parametrize(
    "store, mode, point",
    [
        pytest.param(*both, point, marks=() if quick == point else pytest.mark.slow)
        for both, quick in QUICK.items()
        for point in POINTS
    ],
)
def test_a_killed_receiver_loses_and_doubles_nothing(
    sqs: Sqs, request: pytest.FixtureRequest, store: str, mode: str, point: str
) -> None:
    url = request.getfixturevalue(store)
    queue = Queue(url)
    queue.publish(jobs)
    sqs.send(*({"payload": number} for number in range(COUNT)))
    program = [sys.executable, "-m", "tests.inboxes.killed_receiver", url, sqs.url, mode, point]
    killed = subprocess.run(program, cwd=ROOT, timeout=900, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    if point == "before row":
        assert everything(queue) == []
    if point != "after delete":
        assert sum(sqs.count()) == COUNT
    queue.inboxes.append(SqsInbox(sqs.url, pipeline="jobs", mode="fast", visibility="2s"))
    with working(queue, jobs):
        until(lambda: sqs.count() == (0, 0), "the deletions")
        until(lambda: len(everything(queue, statuses=["completed"])) == COUNT, "all tasks")
    tasks = everything(queue)
    assert sorted(task.payload for task in tasks) == list(range(COUNT))
    for task in tasks:
        assert task.status is Status.COMPLETED
        assert [entry.what for entry in task.history].count("completed") == 1
    queue.close()
