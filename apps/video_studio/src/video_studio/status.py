"""Setting a task's status by hand, by legal moves only."""

from typing import Any

from onerow import BadInput, IllegalMove, Queue, Status, Task, UnknownName
from onerow.core.times import spell
from video_studio.library import find_video, writing
from video_studio.opening import open_queue
from video_studio.places import safe_name


def update_queue_status(
    task_id: str,
    status: str,
    *,
    error_message: str | None = None,
    retry_count: int | None = None,
    metadata: dict[str, Any] | None = None,
    by: str = "",
) -> Task:
    """Move a task to a status and return it; a missing row is added if the status is waiting.

    waiting retries a failed task, completed finishes it by hand, failed needs an error_message (elsewhere it is the note
    in its history), cancelled is final. retry_count sets the row's count, with waiting only. metadata replaces the
    task's. Raise IllegalMove, which says what to do instead, if the current status doesn't allow it.
    """
    wanted = _status(status)
    if wanted is Status.PROCESSING:
        raise IllegalMove(
            f"task {task_id} can't be made processing by hand: only a worker that holds its lease is working on it, and "
            "a row that merely says so would block its phase; set 'waiting', and a worker takes it",
            task_id=task_id,
        )
    if retry_count is not None and wanted is not Status.WAITING:
        raise BadInput("retry_count goes with the status 'waiting' only", field="retry_count")
    queue = open_queue()
    try:
        task = queue.get(task_id)
    except UnknownName:
        return _create(queue, task_id, wanted, retry_count, metadata)
    if task.status is not wanted:
        task = _move(queue, task, wanted, error_message, retry_count, by)
    elif retry_count not in (None, task.retry_count):
        raise IllegalMove(
            f"task {task_id} is waiting already, with retry_count {task.retry_count}; it counts its own retries",
            task_id=task_id,
            status=task.status,
        )
    return task if metadata is None else queue.annotate(task_id, metadata)


def _create(
    queue: Queue, task_id: str, wanted: Status, retry_count: int | None, metadata: dict[str, Any] | None
) -> Task:
    if wanted is not Status.WAITING:
        raise IllegalMove(f"there is no task {task_id!r}; a new one begins as 'waiting'", task_id=task_id)
    if retry_count:
        raise BadInput("a new task has not been retried; leave retry_count out", field="retry_count")
    safe_name(task_id)
    video = find_video(task_id)
    payload = {} if video is None or video.scheduled_time is None else {"scheduled_time": spell(video.scheduled_time)}
    with writing() as tx:
        return queue.add(
            "videos",
            payload,
            task_id=task_id,
            user_id="studio",
            title=task_id if video is None else video.topic,
            metadata=metadata,
            tx=tx,
        )


def _move(queue: Queue, task: Task, wanted: Status, message: str | None, retry_count: int | None, by: str) -> Task:
    note = message or ""
    match wanted, task.status:
        case Status.WAITING, Status.FAILED:
            return queue.retry(task.task_id, retry_count=retry_count, note=note, by=by)
        case Status.WAITING, Status.COMPLETED:
            raise _illegal(task, wanted, f"to make it again, run: studio queue replay {task.task_id}")
        case Status.COMPLETED, Status.WAITING | Status.FAILED:
            return queue.finish(task.task_id, note=note, by=by)
        case Status.FAILED, Status.WAITING:
            if not message:
                raise BadInput("a failed task needs an error_message", field="error_message")
            return queue.fail(task.task_id, message, by=by)
        case Status.CANCELLED, Status.WAITING | Status.FAILED | Status.PROCESSING:
            return queue.cancel(task.task_id, note=note, by=by)
        case _, Status.PROCESSING:
            raise _illegal(task, wanted, "a worker holds it and says how it ends; to stop it, set 'cancelled'")
        case _, Status.CANCELLED:
            raise _illegal(task, wanted, "cancelled is final; add the video anew")
    raise _illegal(task, wanted, "it has ended so")


def _illegal(task: Task, wanted: Status, instead: str) -> IllegalMove:
    return IllegalMove(
        f"task {task.task_id} is {task.status} and can't become {wanted}: {instead}",
        task_id=task.task_id,
        status=task.status,
    )


def _status(name: str) -> Status:
    try:
        return Status(name)
    except ValueError:
        raise UnknownName(f"no status {name!r}; one of {', '.join(Status)}", field="status") from None
