"""An SQS queue as an inbox: each message names a task or carries a new one."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec.structs import replace

from onerow.core.addition import Addition
from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput, InboxUnavailable
from onerow.core.messages import AddTasks, BadMessage, Message, Request, decode_object, derived_id, read_request
from onerow.core.sizes import Size, parse_size, spell_size
from onerow.inboxes.pipeline_option import pipeline_name
from onerow.inboxes.sqs_client import BATCH, LONGEST_WAIT, SqsClient
from onerow.inboxes.sqs_dead_letter import DeadLetters
from onerow.inboxes.sqs_poll import Poll
from onerow.pipelines.pipeline import Pipeline

_LONGEST_HIDDEN = 12 * 3600


class SqsInbox:
    """Receive tasks from an SQS queue.

    queue_url: the URL of the queue. pipeline: for messages that name none. mode: 'fast' deletes a message as soon as
    its row is stored; 'classic' after the work, and extends its visibility until then. dead_letter: URL of the queue
    for messages that can't be read; by default the target of the queue's redrive policy. read: your own function from a
    message to a request. receivers: threads of each worker that receive. visibility: how long a delivered message is
    hidden. in_flight: how many messages a worker holds at most in classic mode. max_size: the largest body.

    Credentials and region come from boto3's usual places; the region also from the URL.
    """

    def __init__(
        self,
        queue_url: str,
        *,
        pipeline: Pipeline | str | None = None,
        mode: Literal["fast", "classic"] = "fast",
        dead_letter: str | None = None,
        read: Callable[[Message], Request] | None = None,
        receivers: int = 1,
        visibility: Duration = "60s",
        in_flight: int = 100,
        max_size: Size = "1MiB",
        endpoint_url: str | None = None,
        region: str | None = None,
    ) -> None:
        self.queue_url = _check_url(queue_url, "queue_url")
        if mode not in ("fast", "classic"):
            raise BadInput(f"mode must be 'fast' or 'classic', not {mode!r}", field="mode")
        self.mode = mode
        self.receivers = _count(receivers, "receivers", 50)
        self.in_flight = _count(in_flight, "in_flight", 10_000)
        self._visibility = int(parse_duration(visibility, "visibility").total_seconds())
        if not 1 <= self._visibility <= _LONGEST_HIDDEN:
            raise BadInput(f"visibility must be from 1 second to 12 hours, not {visibility!r}", field="visibility")
        self.pipeline = pipeline
        self._pipeline = pipeline_name(pipeline)
        self._own_read = read
        self._max_size = parse_size(max_size, "max_size")
        self._fifo = queue_url.endswith(".fifo")
        self._client = SqsClient(queue_url, endpoint_url, region)
        dead_letter = None if dead_letter is None else _check_url(dead_letter, "dead_letter")
        self._dead_letters = DeadLetters(self._client, queue_url, dead_letter)
        self._lock = threading.Lock()
        self._polls: set[Poll] = set()
        self._abandoned: list[Poll] = []
        self._backlog = False  # whether the last batch was full

    @property
    def name(self) -> str:
        region = f"{self._client.region}/" if self._client.region else ""
        return f"sqs:{region}{urlsplit(self.queue_url).path.strip('/')}"

    @property
    def hold_for(self) -> float:
        return self._visibility if self.mode == "classic" else 0.0

    def check(self) -> None:
        """Find the dead-letter queue; raise BadInput if there is none."""
        self._dead_letters.find()

    # ── the port ──

    def receive(self, wait: float) -> list[Message]:
        try:
            self.check()
        except BadInput as error:
            raise InboxUnavailable(str(error)) from error
        messages: list[Message] = []
        if wait < 1 or self._backlog:
            # No long poll, and so no thread for it, while full batches arrive.
            messages = self._receive(0)
        if not messages and wait >= 1:
            messages = self._wait_for_messages(min(int(wait), LONGEST_WAIT))
        self._backlog = len(messages) == BATCH
        return messages

    def read(self, message: Message) -> Request:
        size = len(message.body.encode())
        if size > self._max_size:
            raise BadMessage(f"has {size:,} bytes; at most {spell_size(self._max_size)} are allowed", field="body")
        if self._own_read is None:
            request = read_request(decode_object(message.body), self._pipeline, message.message_id)
        else:
            request = self._own_read(message)
        if not isinstance(request, AddTasks):
            return request
        if not request.pipeline and request.additions:
            if not self._pipeline:
                raise BadMessage("names no pipeline", fix="give the inbox one", field="pipeline")
            request = replace(request, pipeline=self._pipeline)
        return _in_group(message, request) if self._fifo else request

    def acknowledge(self, messages: Sequence[Message]) -> None:
        entries = [{"ReceiptHandle": message.receipt} for message in messages]
        self._client.batch("delete_message_batch", self.queue_url, entries)

    def reject(self, message: Message, reason: str) -> None:
        self._dead_letters.send(message, reason)
        self.acknowledge([message])

    def release(self, messages: Sequence[Message], after: float) -> None:
        # An abandoned poll would receive a message that is visible now, and a process that ends could not return it.
        left = max((poll.seconds_left for poll in self._abandoned), default=0.0)
        hidden = max(0, min(ceil(max(after, left)), _LONGEST_HIDDEN))
        entries = [{"ReceiptHandle": message.receipt, "VisibilityTimeout": hidden} for message in messages]
        self._client.batch("change_message_visibility_batch", self.queue_url, entries)

    def interrupt(self) -> None:
        with self._lock:
            polls = list(self._polls)
            self._abandoned = [poll for poll in self._abandoned if poll.seconds_left] + polls
        for poll in polls:
            poll.abandon()

    def close(self) -> None:
        self._client.close()

    # ── messages ──

    def _wait_for_messages(self, wait: int) -> list[Message]:
        """Make a long poll that `interrupt` can end; messages that arrive after that are delivered again."""
        poll = Poll(lambda: self._receive(wait), wait, lambda late: self.release(late, 0))
        with self._lock:
            self._polls.add(poll)
        try:
            return poll.result()
        finally:
            with self._lock:
                self._polls.discard(poll)

    def _receive(self, wait: int) -> list[Message]:
        answer = self._client.call(
            "receive_message",
            QueueUrl=self.queue_url,
            MaxNumberOfMessages=BATCH,
            WaitTimeSeconds=wait,
            VisibilityTimeout=self._visibility,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return [_message(found) for found in answer.get("Messages", ())]


def _message(found: dict[str, Any]) -> Message:
    facts = found.get("Attributes", {})
    sent = facts.get("SentTimestamp")
    return Message(
        found["MessageId"],
        found["Body"],
        None if sent is None else datetime.fromtimestamp(int(sent) / 1000, UTC),
        int(facts.get("ApproximateReceiveCount", 1)),
        facts | {"MessageAttributes": found.get("MessageAttributes", {})},
        found["ReceiptHandle"],
    )


def _in_group(message: Message, request: AddTasks) -> AddTasks:
    """Return the request with the group of a FIFO message as limit_key and its deduplication id as unique key.

    Ids without a name of their own start with the sequence number, because tasks that are due at the same time are
    claimed in the order of their ids.
    """
    facts = message.attributes
    sequence, group = facts.get("SequenceNumber", ""), facts.get("MessageGroupId", "")
    unique = facts.get("MessageDeduplicationId")
    several = len(request.additions) > 1
    own_id = derived_id(message.message_id)

    def grouped(number: int, addition: Addition) -> Addition:
        given = addition.task_id not in (None, own_id)
        return replace(
            addition,
            task_id=addition.task_id if given else f"{sequence:0>20}-{own_id}" + (f"-{number:04}" if several else ""),
            limit_key=addition.limit_key or group,
            unique=addition.unique or (f"{unique} {number}" if several and unique else unique),
        )

    return replace(request, additions=tuple(grouped(*each) for each in enumerate(request.additions)))


def _check_url(url: str, field: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or len(parts.path) < 2 or parts.query:
        raise BadInput(
            f"{url!r} is not the URL of a queue",
            fix="write it like https://sqs.eu-central-1.amazonaws.com/123456789012/videos",
            field=field,
        )
    return url


def _count(value: int, field: str, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise BadInput(f"{field} must be a whole number from 1 to {most:,}, not {value!r}", field=field)
    return value
