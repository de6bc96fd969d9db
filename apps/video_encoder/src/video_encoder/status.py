"""Videos in the words of those who watch them: UPLOADED, PROCESSING, READY, FAILED, FAILED_TRANSIENT."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from onerow import Filter, Status, Task
from video_encoder.opening import open_queue, videos


class VideoStatus(StrEnum):
    """The status of a video. FAILED_TRANSIENT: the engine tries it again by itself. READY: it can be watched."""

    UPLOADED = "UPLOADED"
    PROCESSING = "PROCESSING"
    READY = "READY"
    FAILED = "FAILED"
    FAILED_TRANSIENT = "FAILED_TRANSIENT"
    CANCELLED = "CANCELLED"


class Video(msgspec.Struct, frozen=True):
    """One video, as its row says."""

    video_id: str
    status: VideoStatus
    name: str
    attempt: int
    progress: dict[str, Any] | None
    error: str | None
    leased_by: str | None
    leased_until: datetime | None
    master: str | None  # the key of the master playlist, once it is stored


_BEFORE_READY = frozenset({"encode", "check"})
_WHERE: dict[VideoStatus, Filter] = {
    VideoStatus.UPLOADED: Filter(statuses=frozenset({Status.WAITING}), phases=frozenset({"encode"})),
    VideoStatus.FAILED_TRANSIENT: Filter(statuses=frozenset({Status.WAITING}), phases=_BEFORE_READY),
    VideoStatus.PROCESSING: Filter(statuses=frozenset({Status.PROCESSING, Status.WAITING}), phases=_BEFORE_READY),
    VideoStatus.READY: Filter(
        any_of=(Filter(phases=frozenset({"delete_raw"})), Filter(statuses=frozenset({Status.COMPLETED})))
    ),
    VideoStatus.FAILED: Filter(statuses=frozenset({Status.FAILED}), phases=_BEFORE_READY),
    VideoStatus.CANCELLED: Filter(statuses=frozenset({Status.CANCELLED}), phases=_BEFORE_READY),
}
"""A filter that finds at least the videos of each status."""


def status_of(task: Task) -> VideoStatus:
    """Return the status of a video's task."""
    if task.phase == "delete_raw" or task.status is Status.COMPLETED:
        return VideoStatus.READY
    match task.status:
        case Status.FAILED:
            return VideoStatus.FAILED
        case Status.CANCELLED:
            return VideoStatus.CANCELLED
        case Status.WAITING if task.retry_count:
            return VideoStatus.FAILED_TRANSIENT
        case Status.WAITING if task.phase == "encode":
            return VideoStatus.UPLOADED
    return VideoStatus.PROCESSING


def find_video(video_id: str) -> Video:
    """Return one video; raise UnknownName if there is none."""
    return _video(open_queue().get(video_id))


def list_videos(status: VideoStatus | str | None = None) -> Iterator[Video]:
    """Iterate over the videos, or those of a status."""
    wanted = None if status is None else VideoStatus(status)
    where = Filter() if wanted is None else _WHERE[wanted]
    for task in open_queue().select(msgspec.structs.replace(where, pipeline=videos.name)):
        if wanted is None or status_of(task) is wanted:
            yield _video(task)


def _video(task: Task) -> Video:
    encoded = task.results.get("encode")
    return Video(
        video_id=task.task_id,
        status=status_of(task),
        name=task.title,
        attempt=task.attempt,
        progress=task.progress or None,
        error=task.error,
        leased_by=task.leased_by,
        leased_until=task.leased_until,
        master=None if encoded is None else f"{encoded['prefix']}master.m3u8",
    )
