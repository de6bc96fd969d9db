"""Files dropped by several processes while workers are killed: each becomes one task, and no file is left behind."""

import os
import random
import sys
import time

import pytest

from onerow import Filter, Status
from tests.engine.kit import until
from tests.faults.kit import Place

pytestmark = [pytest.mark.faults, pytest.mark.promise("P1")]


@pytest.mark.parametrize(
    "files, kills",
    [(80, 3), pytest.param(1000, 40, marks=[pytest.mark.slow])],
)
def test_every_dropped_file_becomes_one_task_while_workers_are_killed(any_place: Place, files: int, kills: int) -> None:
    place = any_place
    folder = place.folder / "queue"
    folder.mkdir()
    env = {"FAULTS_FOLDER": str(folder)}
    workers = [place.worker(app="tests.faults.inbox_app", env=env) for _ in range(3)]
    share = files // 4
    droppers = [
        place.run([sys.executable, "-m", "tests.faults.inbox_app", str(part * share), str((part + 1) * share)], env)
        for part in range(4)
    ]
    chance = random.Random(7)
    for _ in range(kills):
        time.sleep(0.2)
        chance.choice(workers).kill("worker")
    assert [dropper.wait(900) for dropper in droppers] == [0] * 4
    done = Filter(pipeline="jobs", statuses=frozenset({Status.COMPLETED}))
    until(lambda: sum(count.count for count in place.queue.count(done)) >= files, "all tasks", 300)
    until(lambda: not [name for name in os.listdir(folder) if name.endswith(".json")], "the last file")
    tasks = place.queue.find(Filter(pipeline="jobs"), limit=1000).tasks
    assert sorted(task.payload["n"] for task in tasks) == list(range(files))
    assert {task.status for task in tasks} == {Status.COMPLETED}
    assert len(os.listdir(folder / "archive")) == files
    assert os.listdir(folder / "rejected") == []
