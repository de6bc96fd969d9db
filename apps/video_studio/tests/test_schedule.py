"""The schedule: a wait phase without code or slot, which ends at its time."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.video_studio.tests.kit import good, joined
from onerow import BadInput, Queue, Status, TaskAdvanced
from onerow.testing import Rehearsal
from video_studio import add_video, videos
from video_studio.library import find_video
from video_studio.pipeline import Job


def due(queue: Queue, task_id: str, moment: datetime, priority: int = 0) -> None:
    joined(task_id)
    queue.add(videos, Job(moment), task_id=task_id, priority=priority)


@pytest.mark.contract(
    "The schedule phase passes when its scheduled_time has come.",
    "A schedule whose time has not come stays waiting.",
    "A schedule that is not yet due must not count as success and jump on.",
)
def test_a_schedule_passes_when_its_time_has_come_and_stays_waiting_until_then(
    queue: Queue, rehearsal: Rehearsal
) -> None:
    rehearsal.borrow(queue)
    due(queue, "t1", rehearsal.now + timedelta(hours=1))
    rehearsal.forward("59m")
    early = rehearsal.get("t1")
    assert (early.type, early.status, early.history) == ("schedule", "waiting", [])
    rehearsal.forward("2m")
    late = rehearsal.get("t1")
    assert good(late) == ["schedule", "script"]
    assert late.history[0].when >= early.run_at


@pytest.mark.contract("A row that is not due must not hide due ones behind it.")
def test_a_row_that_is_not_due_does_not_hide_due_ones_behind_it(queue: Queue, rehearsal: Rehearsal) -> None:
    rehearsal.borrow(queue)
    for number in range(30):
        due(queue, f"later-{number}", rehearsal.now + timedelta(days=1), priority=-100)
    due(queue, "now", rehearsal.now)
    rehearsal.run()
    assert good(rehearsal.get("now")) == ["schedule", "script"]
    assert {rehearsal.get(f"later-{number}").type for number in range(30)} == {"schedule"}


@pytest.mark.contract("Priority decides the order, and then the due time.")
def test_priority_decides_the_order_and_then_the_due_time(queue: Queue, rehearsal: Rehearsal) -> None:
    rehearsal.borrow(queue)
    order: list[str] = []
    queue.on(TaskAdvanced, lambda event: order.append(event.task.task_id) if event.phase == "script" else None)
    queue.pause(videos, "script")
    for task_id, priority in [("b", 0), ("d", 5), ("c", 0), ("a", -5)]:
        due(queue, task_id, rehearsal.now, priority=priority)
        rehearsal.forward("1s")  # each reaches script one second after the one before
    queue.resume(videos, "script")
    rehearsal.forward("2s")
    assert order == ["a", "b", "c", "d"]


@pytest.mark.contract("Times are UTC and never naive.")
def test_times_are_utc_and_a_naive_one_is_refused(queue: Queue) -> None:
    for naive in (datetime(2030, 1, 1, 9, 0), "2030-01-01T09:00:00", "2030-01-01 09:00", "tomorrow"):
        with pytest.raises(BadInput, match="scheduled_time"):
            add_video("tides", scheduled_time=naive)
    assert queue.count() == []
    seoul = add_video("tides", scheduled_time="2030-01-01T09:00:00+09:00")
    assert seoul.run_at == datetime(2030, 1, 1, tzinfo=UTC)
    known = find_video(seoul.task_id)
    assert known is not None
    assert known.scheduled_time == seoul.run_at
    assert seoul.status is Status.WAITING
