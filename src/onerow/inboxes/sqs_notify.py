"""Send messages that name added tasks, for programs that wait on an SQS queue instead of polling the store."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from onerow.core.messages import derived_id
from onerow.core.task import Task
from onerow.inboxes.sqs_client import SqsClient


class _OfTask(Protocol):
    @property
    def task(self) -> Task: ...


class SqsNotifier:
    """Sends {"task_id": …} to a queue; as a hook, after each add: `queue.on(TaskAdded, SqsNotifier(url))`.

    A lost message only delays the work: workers also look into the store. Tasks that were added in your own transaction
    (`tx=`) send no event; call `send` after your commit.
    """

    def __init__(self, queue_url: str, *, endpoint_url: str | None = None, region: str | None = None) -> None:
        self._queue_url = queue_url
        self._client = SqsClient(queue_url, endpoint_url, region)

    def __call__(self, event: _OfTask) -> None:
        self.send([event.task])

    def send(self, tasks: Sequence[Task]) -> None:
        """Send one message for each task; raise InboxUnavailable if SQS does not accept them."""
        fifo = self._queue_url.endswith(".fifo")
        entries: list[dict[str, str]] = []
        for task in tasks:
            entry = {"MessageBody": msgspec.json.encode({"task_id": task.task_id}).decode()}
            if fifo:
                entry["MessageGroupId"] = task.limit_key[:128] or "onerow"
                entry["MessageDeduplicationId"] = derived_id(task.task_id, str(task.version))
            entries.append(entry)
        self._client.batch("send_message_batch", self._queue_url, entries)

    def close(self) -> None:
        self._client.close()
