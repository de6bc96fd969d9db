"""Tabs: every task is in exactly one tab, and the counts match."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.video_studio.tests.kit import row_only
from onerow import Queue, UnknownName
from video_studio import TABS, add_video, open_queue, queue_counts, schedules_by_tab, update_queue_status
from video_studio.library import writing

DAY = datetime(2030, 1, 1, tzinfo=UTC)


def place(task_id: str, phase: str) -> None:
    """Move a task to a phase by hand."""
    for _ in range(["schedule", "script", "image", "video", "youtube"].index(phase)):
        open_queue().finish(task_id, phase_only=True)


@pytest.mark.contract(
    "The tabs scheduled, script, image, video, youtube, failed, completed and cancelled show their rows.",
    "A tab shows the newest scheduled_time first.",
    "Each tab has a count, 0 and not null when it is empty.",
)
def test_the_tabs_show_their_rows_newest_scheduled_time_first_and_their_counts(queue: Queue) -> None:
    assert queue_counts() == dict.fromkeys(TABS, 0)
    assert [schedules_by_tab(tab) for tab in TABS] == [[]] * 8
    for phase in ("schedule", "script", "image", "video", "youtube"):
        for number in (2, 0, 1):
            add_video(f"{phase} {number}", scheduled_time=DAY + timedelta(days=number), task_id=f"{phase}-{number}")
            place(f"{phase}-{number}", phase)
    for number, status in enumerate(["failed", "completed", "cancelled"]):
        add_video(status, scheduled_time=DAY + timedelta(days=number), task_id=status)
        update_queue_status(status, status, error_message="by hand")
    for tab in ("scheduled", "script", "image", "video", "youtube"):
        phase = "schedule" if tab == "scheduled" else tab
        lines = schedules_by_tab(tab)
        assert [line.task_id for line in lines] == [f"{phase}-2", f"{phase}-1", f"{phase}-0"]
        assert (lines[0].topic, lines[0].type, lines[0].status) == (f"{phase} 2", phase, "waiting")
    for tab in ("failed", "completed", "cancelled"):
        assert [(line.task_id, line.status) for line in schedules_by_tab(tab)] == [(tab, tab)]
    assert schedules_by_tab("failed")[0].error == "by hand"
    expected = dict.fromkeys(TABS, 3) | {"failed": 1, "completed": 1, "cancelled": 1}
    assert queue_counts() == expected


@pytest.mark.contract("No row is omitted from the tabs.")
def test_no_row_is_omitted_from_the_tabs_whatever_it_lacks_and_whoever_holds_it(queue: Queue) -> None:
    row_only("no-app-row")
    add_video("no schedule", task_id="no-schedule")
    with writing() as tx:
        tx.execute("DELETE FROM task_schedule")
        # In the specification a schedule is briefly 'processing'. Here it never is, but the tab must handle it.
        tx.execute(
            "UPDATE task_queue SET status = 'processing', leased_by = 'w1', leased_until = '2099-01-01T00:00:00.000Z' "
            "WHERE task_id = 'no-schedule'"
        )
    row_only("held")
    place("held", "script")
    add_video("ended", task_id="ended")
    queue.cancel("ended")
    with queue.claim("videos", "script", ids=["held"]) as leases:
        assert [lease.task.task_id for lease in leases] == ["held"]
        shown = {line.task_id: (tab, line.topic) for tab in TABS for line in schedules_by_tab(tab)}
        counts = queue_counts()
    assert shown == {
        "no-app-row": ("scheduled", None),
        "no-schedule": ("scheduled", "no schedule"),
        "held": ("script", None),
        "ended": ("cancelled", "ended"),
    }
    assert counts == dict.fromkeys(TABS, 0) | {"scheduled": 2, "script": 1, "cancelled": 1}


def test_a_tab_shows_all_of_more_rows_than_a_page_holds(queue: Queue) -> None:
    for number in range(450):
        queue.add("videos", {"scheduled_time": "2030-01-01T00:00:00Z"}, task_id=f"t{number}")
    assert len(schedules_by_tab("scheduled")) == queue_counts()["scheduled"] == 450


def test_a_task_that_was_rescheduled_stands_where_its_new_time_puts_it(queue: Queue) -> None:
    add_video("one", scheduled_time=DAY, task_id="one")
    add_video("two", scheduled_time=DAY + timedelta(days=1), task_id="two")
    queue.reschedule("one", DAY + timedelta(days=2))
    assert [line.task_id for line in schedules_by_tab("scheduled")] == ["one", "two"]


@pytest.mark.contract("An unknown tab is a clear error.")
@pytest.mark.parametrize("wrong", ["nothing", "", "Failed", "x' OR 1=1 --"])
def test_an_unknown_tab_is_a_clear_error(queue: Queue, wrong: str) -> None:
    with pytest.raises(UnknownName, match="there are scheduled, script, image, video, youtube, failed, completed"):
        schedules_by_tab(wrong)
