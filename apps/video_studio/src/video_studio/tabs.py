"""Tabs of schedules, and the number of tasks in each."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from onerow import Filter, Status, Task, UnknownName
from video_studio.library import VideoTask, find_videos
from video_studio.opening import open_queue

_OPEN = frozenset({Status.WAITING, Status.PROCESSING})


def _phase(name: str) -> Filter:
    return Filter(pipeline="videos", phases=frozenset({name}), statuses=_OPEN)


def _end(status: Status) -> Filter:
    return Filter(pipeline="videos", statuses=frozenset({status}))


TABS: Mapping[str, Filter] = {
    "scheduled": _phase("schedule"),
    "script": _phase("script"),
    "image": _phase("image"),
    "video": _phase("video"),
    "youtube": _phase("youtube"),
    "failed": _end(Status.FAILED),
    "completed": _end(Status.COMPLETED),
    "cancelled": _end(Status.CANCELLED),
}
"""Tab → the filter of its tasks. Every task is in exactly one tab."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a tab: the queue's row with the app's row."""

    task_id: str
    topic: str | None  # None: the app has no row of the task
    scheduled_time: datetime
    type: str
    status: Status
    error: str | None
    user_id: str
    priority: int
    retry_count: int
    progress: Any

    @classmethod
    def of(cls, task: Task, video: VideoTask | None) -> "Schedule":
        planned = None if video is None else video.scheduled_time
        return cls(
            task_id=task.task_id,
            topic=None if video is None else video.topic,
            scheduled_time=task.scheduled_time or planned or task.created_at,
            type=task.type,
            status=task.status,
            error=task.error,
            user_id=task.user_id,
            priority=task.priority,
            retry_count=task.retry_count,
            progress=task.progress,
        )


def schedules_by_tab(tab: str) -> list[Schedule]:
    """Return every task of a tab, the newest scheduled_time first."""
    if tab not in TABS:
        raise UnknownName(f"no tab {tab!r}; there are {', '.join(TABS)}", field="tab")
    tasks = list(open_queue().select(TABS[tab]))
    known = find_videos(task.task_id for task in tasks)
    lines = [Schedule.of(task, known.get(task.task_id)) for task in tasks]
    return sorted(lines, key=lambda line: (line.scheduled_time, line.task_id), reverse=True)


def queue_counts() -> dict[str, int]:
    """Return the number of tasks per tab, including 0."""
    counts = dict.fromkeys(TABS, 0)
    for tally in open_queue().count(Filter(pipeline="videos")):
        counts[_tab(tally.phase, tally.status)] += tally.count
    return counts


def _tab(phase: str, status: Status) -> str:
    if status not in _OPEN:
        return status.value
    return "scheduled" if phase == "schedule" else phase
