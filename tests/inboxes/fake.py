"""An inbox in memory that loses, doubles and reorders messages and answers."""

import random
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from onerow.core.errors import InboxUnavailable
from onerow.core.messages import Message, Request, decode_object, read_request


class FakeInbox:
    """Delivers each message until it is acknowledged. faults: the share of deliveries and answers that go wrong."""

    name = "fake"

    def __init__(self, pipeline: str | None = None, *, seed: int = 0, faults: float = 0.0) -> None:
        self.waiting: list[Message] = []
        self.rejected: dict[str, str] = {}
        self.acknowledged: list[str] = []
        self.unavailable = False
        self._pipeline = pipeline
        self._random = random.Random(seed)
        self._faults = faults

    def send(self, message_id: str, body: object) -> None:
        self.waiting.append(Message(message_id, msgspec.json.encode(body).decode(), deliveries=0))

    def send_text(self, message_id: str, text: str) -> None:
        self.waiting.append(Message(message_id, text, deliveries=0))

    def receive(self, wait: float) -> list[Message]:
        if self.unavailable:
            raise InboxUnavailable("fake: no answer")
        self.waiting = [replace(message, deliveries=message.deliveries + 1) for message in self.waiting]
        chosen = self.waiting[:10]
        if self._faults:
            chosen = [message for message in chosen for _ in range(self._copies())]
            self._random.shuffle(chosen)
        return chosen

    def read(self, message: Message) -> Request:
        return read_request(decode_object(message.body), self._pipeline, message.message_id)

    def acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if self._random.random() >= self._faults:
                self._remove(message)
                self.acknowledged.append(message.message_id)

    def reject(self, message: Message, reason: str) -> None:
        self._remove(message)
        self.rejected[message.message_id] = reason

    def release(self, messages: Sequence[Message], after: float) -> None:
        pass

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _copies(self) -> int:
        chance = self._random.random()
        return 0 if chance < self._faults else 2 if chance < 2 * self._faults else 1

    def _remove(self, message: Message) -> None:
        self.waiting = [other for other in self.waiting if other.message_id != message.message_id]
