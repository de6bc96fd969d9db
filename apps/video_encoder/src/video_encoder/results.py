"""The result of each message, and the log events, in the words of those who watch the encoders.

    result                  the message's video
    ok                      was encoded, or was READY when the message came
    skip:cancel             was cancelled
    skip:claim              fast mode: was leased before the message came, or has failed before
    failed                  has failed
    skip:mark_processing    classic mode: does not wait for a worker
    lock_fail               classic mode: is another worker's, whose lease is live

In fast mode a message is deleted before the work; so the worker that encodes a video knows its result.
"""

import logging
from collections import Counter
from enum import StrEnum

from onerow import MessageHandled, Queue, Status, Task, TaskCancelled, TaskCompleted, TaskFailed
from video_encoder.opening import videos
from video_encoder.status import VideoStatus, status_of

_log = logging.getLogger("video_encoder")


class Result(StrEnum):
    """The result of a message."""

    OK = "ok"
    SKIP_CANCEL = "skip:cancel"
    SKIP_CLAIM = "skip:claim"
    FAILED = "failed"
    SKIP_MARK_PROCESSING = "skip:mark_processing"
    LOCK_FAIL = "lock_fail"


class Results:
    """Logs and counts the results of messages in this process."""

    def __init__(self, queue: Queue, mode: str) -> None:
        self._queue = queue
        self._classic = mode == "classic"
        self.counts: Counter[str] = Counter()
        for kind in (MessageHandled, TaskCompleted, TaskFailed, TaskCancelled):
            queue.on(kind, self.on_event)

    def on_event(self, event: MessageHandled | TaskCompleted | TaskFailed | TaskCancelled) -> None:
        """Log what an event says of a message or a video."""
        if isinstance(event, MessageHandled):
            self._handled(event)
        elif event.task.pipeline == videos.name:
            self._ended(event.task)

    def _handled(self, event: MessageHandled) -> None:
        for task in event.tasks:
            result = self._of_work(task) if event.held else self._at_receipt(task, event.acknowledged)
            if result is not None:
                self._record(result, task, f" (message {event.message_id})")
                if result is Result.OK and not event.held:
                    _say("VIDEO_ALREADY_READY_SKIP", task, f" (message {event.message_id})")

    def _ended(self, task: Task) -> None:
        result = self._of_work(task)
        if result is Result.OK:
            _say("SQS_JOB_COMPLETED", task)
        if result is not None and not self._classic:
            self._record(result, task)

    def _at_receipt(self, task: Task, acknowledged: bool) -> Result | None:
        """Return the result of a message whose video needs no worker; None if it waits for one."""
        if acknowledged and status_of(task) is VideoStatus.READY:
            return Result.OK
        if task.status is Status.CANCELLED:
            return Result.SKIP_CANCEL
        if task.status is Status.WAITING:
            return None
        if not self._classic:
            return Result.SKIP_CLAIM
        live = task.leased_until is not None and task.leased_until > self._queue.store.now()
        return Result.LOCK_FAIL if live else Result.SKIP_MARK_PROCESSING

    def _of_work(self, task: Task) -> Result | None:
        ends = {Status.COMPLETED: Result.OK, Status.CANCELLED: Result.SKIP_CANCEL, Status.FAILED: Result.FAILED}
        return ends.get(task.status)

    def _record(self, result: Result, task: Task, note: str = "") -> None:
        self.counts[result] += 1
        _log.info("%s: video %s%s", result, task.task_id, note, extra={"result": str(result), "task_id": task.task_id})


def _say(event: str, task: Task, note: str = "") -> None:
    _log.info("%s: video %s%s", event, task.task_id, note, extra={"event": event, "task_id": task.task_id})
