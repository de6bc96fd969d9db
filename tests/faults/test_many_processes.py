"""Several processes on one file: none gets a lock error, and limits hold across all of them."""

import subprocess
import sys
from collections import Counter

import pytest

from onerow import Status
from onerow.core.filters import Filter
from onerow.core.status import PROCESSING
from tests.engine.kit import until
from tests.faults import app
from tests.faults.kit import ROOT, Place, check_story

pytestmark = [pytest.mark.faults, pytest.mark.promise("P2", "P7")]


def write_at_once(place: Place, processes: int, seconds: float) -> int:
    """Let several programs write at once for some time; check that none raised; return how many tasks they added."""
    argv = [sys.executable, "-m", "tests.faults.writers", str(seconds)]
    running = [
        subprocess.Popen(
            [*argv, str(seed)], cwd=ROOT, env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for seed in range(processes)
    ]
    try:
        ends = [process.communicate(timeout=seconds * 2 + 90) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [error.decode() for _, error in ends] == [""] * processes
    assert [process.returncode for process in running] == [0] * processes
    return sum(int(out) for out, _ in ends)


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=[pytest.mark.slow])])
def test_eight_writers_at_once_raise_nothing_and_lose_nothing(place: Place, seconds: int) -> None:
    worker = place.worker("--processes", "2")
    added = write_at_once(place, 8, seconds)
    assert added > 0
    assert sum(tally.count for tally in place.queue.count()) == added
    worker.terminate()
    assert worker.wait() == 0
    for task in place.everything():
        assert task.status in (Status.WAITING, Status.COMPLETED, Status.CANCELLED), task.error
        if task.status is not Status.CANCELLED:
            check_story(task, ("first", "second"))
    assert place.queue.count(Filter(statuses=frozenset({Status.COMPLETED})))
    assert "locked" not in place.output()
    assert "Traceback" not in place.output()


def test_limits_per_phase_and_per_key_hold_over_two_worker_processes(place: Place) -> None:
    for number in range(24):
        place.queue.add(app.limited, {"for": 0.15}, limit_key=f"key-{number % 3}")
    worker = place.worker("--processes", "2", "--concurrency", "8")
    seen: Counter[int] = Counter()
    workers: set[str] = set()

    def all_ended() -> bool:
        running = place.queue.find(Filter(statuses=frozenset({PROCESSING}), pipeline="limited")).tasks
        for phase, most, per_key in (("both", 4, 2), ("one", 1, None)):
            here = [task for task in running if task.phase == phase]
            assert len(here) <= most
            keys = Counter(task.limit_key for task in here)
            assert per_key is None or not keys or max(keys.values()) <= per_key
        seen[len(running)] += 1
        workers.update(task.leased_by or "" for task in running)
        return not place.queue.count(Filter(statuses=frozenset({Status.WAITING, PROCESSING})))

    until(all_ended)
    assert {task.status for task in place.everything()} == {Status.COMPLETED}
    # Independent of the rows, the handlers noted when they began and ended: count how many ran at once.
    inside: dict[str, int] = Counter()
    most: dict[str, int] = Counter()
    for words in place.notes():
        if words[0] in ("enter", "leave"):
            phase = words[4].partition("=")[2]
            inside[phase] += 1 if words[0] == "enter" else -1
            most[phase] = max(most[phase], inside[phase])
    assert most["both"] <= 4
    assert most["one"] == 1
    assert max(seen) >= 2
    worker.terminate()
    assert worker.wait() == 0


def test_two_workers_share_the_tasks_and_run_none_twice(place: Place) -> None:
    place.queue.add_many(app.quick, range(400))
    place.worker()
    place.worker()
    until(lambda: not place.queue.count(Filter(statuses=frozenset({Status.WAITING, PROCESSING}))))
    for task in place.everything():
        check_story(task, ("first", "second"))
        assert (task.status, task.token, task.crash_count) == (Status.COMPLETED, 2, 0)
