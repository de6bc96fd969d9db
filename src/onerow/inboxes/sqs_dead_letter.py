"""The queue for messages that can't be read: each is sent there with the reason, then deleted."""

import threading
from typing import Any

import msgspec

from onerow.core.errors import BadInput
from onerow.core.messages import Message
from onerow.inboxes.sqs_client import Refused, SqsClient

_MOST_ATTRIBUTES = 10
_LONGEST_REASON = 2_000
_SHORT_REASON = 200
_TOO_LARGE = ("InvalidParameterValue", "InvalidMessageContents", "MessageTooLong")


class DeadLetters:
    """Sends rejected messages to a dead-letter queue, given or found in the redrive policy of the source."""

    def __init__(self, client: SqsClient, queue_url: str, target: str | None) -> None:
        self._client = client
        self._queue_url = queue_url
        self._target = target
        self._lock = threading.Lock()

    def find(self) -> str:
        """Return the URL of the dead-letter queue; raise BadInput if the source has none."""
        with self._lock:
            if self._target is None:
                self._target = self._target_of_policy()
            return self._target

    def send(self, message: Message, reason: str) -> None:
        """Send a copy of a message, with the reason as an attribute."""
        terms: dict[str, Any] = {"QueueUrl": self.find(), "MessageBody": message.body}
        if terms["QueueUrl"].endswith(".fifo"):
            terms["MessageGroupId"] = message.attributes.get("MessageGroupId") or "rejected"
            terms["MessageDeduplicationId"] = message.message_id
        kept = message.attributes.get("MessageAttributes", {})
        own = {"reason": reason[:_LONGEST_REASON], "source": self._queue_url, "source_message_id": message.message_id}
        # A message may be as large as SQS allows, so that there is no room for more. Its body matters most.
        tries: list[dict[str, Any]] = [
            dict(list(kept.items())[: _MOST_ATTRIBUTES - len(own)]) | _texts(own),
            _texts({"reason": reason[:_SHORT_REASON]}),
            {},
        ]
        for attributes in tries:
            try:
                self._client.call("send_message", **terms, MessageAttributes=attributes)
                return
            except Refused as error:
                if error.code not in _TOO_LARGE or not attributes:
                    raise

    def _target_of_policy(self) -> str:
        found = self._client.call(
            "get_queue_attributes", QueueUrl=self._queue_url, AttributeNames=["RedrivePolicy"]
        ).get("Attributes", {})
        try:
            arn = str(msgspec.json.decode(found["RedrivePolicy"])["deadLetterTargetArn"])
        except (KeyError, TypeError, msgspec.DecodeError):
            raise BadInput(
                f"{self._queue_url} has no dead-letter queue for messages that can't be read",
                fix="give the queue a redrive policy, or the inbox dead_letter=URL",
                field="dead_letter",
            ) from None
        *_, owner, name = arn.split(":")
        return str(self._client.call("get_queue_url", QueueName=name, QueueOwnerAWSAccountId=owner)["QueueUrl"])


def _texts(values: dict[str, str]) -> dict[str, Any]:
    """Return values as attributes of SQS, without the characters that SQS refuses."""
    clean = {name: "".join(c if c.isprintable() else " " for c in value) or "-" for name, value in values.items()}
    return {f"onerow.{name}": {"DataType": "String", "StringValue": value} for name, value in clean.items()}
