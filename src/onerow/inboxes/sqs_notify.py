"""Send messages that name added tasks, for programs that wait on an SQS queue instead of polling the store."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from onerow.core.messages import derived_id
from onerow.core.task import Task
from onerow.inboxes.sqs_client import SqsClient
from onerow.pipelines.pipeline import Pipeline


class _OfTask(Protocol):
    @property
    def task(self) -> Task: ...


class _Notice(msgspec.Struct, frozen=True):
    """What a message needs to know about a task."""

    task_id: str
    version: int
    limit_key: str = ""


class SqsNotifier:
    """Sends {"task_id": …} to a queue after an add: `queue.add(videos, …, notify=SqsNotifier(url))`.

    A lost message only delays the work: workers also look into the store. In your own transaction (`tx=`) the add also
    adds a task of `notifier.pipeline`, which sends the message after your commit; serve that pipeline with a worker.
    As a hook, `queue.on(TaskAdded, notifier)`, it sends a message after each add of this process. queue_url: the URL of
    the queue.
    """

    def __init__(self, queue_url: str, *, endpoint_url: str | None = None, region: str | None = None) -> None:
        self._queue_url = queue_url
        self._client = SqsClient(queue_url, endpoint_url, region)
        queue_name = queue_url.rpartition("/")[2]
        self.name: str = f"sqs:{queue_url}"
        self.pipeline: Pipeline[Any] = Pipeline(f"notify-{queue_name}"[:60])

        @self.pipeline.phase
        def send(notices: list[_Notice]) -> None:
            self._send(notices)

    def __call__(self, event: _OfTask) -> None:
        self.send([event.task])

    def send(self, tasks: Sequence[Task]) -> None:
        """Send one message for each task; raise InboxUnavailable if SQS does not accept them."""
        self._send(_notices(tasks))

    def payload_for(self, tasks: Sequence[Task]) -> Any:
        """Return the payload of a task of `pipeline` that sends messages for these tasks."""
        return msgspec.to_builtins(_notices(tasks))

    def close(self) -> None:
        self._client.close()

    def _send(self, notices: Sequence[_Notice]) -> None:
        fifo = self._queue_url.endswith(".fifo")
        entries: list[dict[str, str]] = []
        for notice in notices:
            entry = {"MessageBody": msgspec.json.encode({"task_id": notice.task_id}).decode()}
            if fifo:
                entry["MessageGroupId"] = notice.limit_key[:128] or "onerow"
                entry["MessageDeduplicationId"] = derived_id(notice.task_id, str(notice.version))
            entries.append(entry)
        self._client.batch("send_message_batch", self._queue_url, entries)


def _notices(tasks: Sequence[Task]) -> list[_Notice]:
    return [_Notice(task.task_id, task.version, task.limit_key) for task in tasks]
