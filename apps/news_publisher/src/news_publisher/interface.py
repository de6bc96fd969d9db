"""Protocols: a queue of articles, and the additional operations of a publisher."""

from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from typing import Any, Protocol

from news_publisher.items import QueueItem


class QueueInterface(ABC):
    """A queue of articles. `item_id` may be an item's own id or its article's unique_id."""

    @abstractmethod
    def enqueue(self, item: QueueItem) -> bool:
        """Add an item; return False if its unique_id is or was in the queue."""

    @abstractmethod
    def dequeue(self, limit: int = 10) -> list[QueueItem]:
        """Claim the first pending items; each is claimed by one caller only."""

    @abstractmethod
    def mark_as_completed(self, item_id: str) -> bool:
        """Mark an item as published; return False if this caller does not hold it."""

    @abstractmethod
    def mark_as_failed(self, item_id: str, error_message: str) -> bool:
        """Mark an item as failed; return False if this caller does not hold it."""

    @abstractmethod
    def retry_failed(self, max_retries: int = 3) -> int:
        """Make items pending again that failed fewer than `max_retries` times, after a back-off; return how many."""

    @abstractmethod
    def is_duplicate(self, unique_id: str) -> bool:
        """Whether the article is or was in the queue."""

    @abstractmethod
    def get_status(self) -> dict[str, int]:
        """Return the number of items per status."""

    @abstractmethod
    def clean_completed(self) -> int:
        """Remove completed items; return how many. They still count as duplicates."""


class Memory(Protocol):
    """What a publisher records about an item it holds, so that the next publisher can continue after a crash."""

    def now(self) -> datetime:
        """Return the time of the queue's clock, which all programs share."""

    def remember(self, item_id: str, name: str, value: Any) -> bool:
        """Record a value; return False if this caller does not hold the item."""

    def recall(self, item_id: str, name: str) -> Any:
        """Return the value that any publisher recorded; None if there is none."""

    def key_of(self, item_id: str) -> str:
        """Return the deduplication key: the same for every attempt, another after a decision to publish again."""

    def is_cancelled(self, item_id: str) -> bool:
        """Whether a cancel was requested."""

    def put_off(self, item_id: str, for_: timedelta) -> bool:
        """Make the item pending again at a later time; this does not count as a failure."""

    def hand_back(self, item_id: str) -> bool:
        """Make the item pending again, or failed if a cancel was requested."""

    def give_up(self, item_id: str, error_message: str) -> bool:
        """Mark the item as failed until a person decides; `retry_failed` skips it."""

    def abandoned(self) -> int:
        """Return the number of items whose lease has expired."""
