"""What a queue of articles can do, and what a publisher asks of it besides."""

from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from typing import Any, Protocol

from news_publisher.items import QueueItem


class QueueInterface(ABC):
    """A queue of articles. `item_id` may be an item's own id or its article's unique_id."""

    @abstractmethod
    def enqueue(self, item: QueueItem) -> bool:
        """Put an item in; False when its unique_id is or was in the queue."""

    @abstractmethod
    def dequeue(self, limit: int = 10) -> list[QueueItem]:
        """Take the first pending items; each is taken by one caller only."""

    @abstractmethod
    def mark_as_completed(self, item_id: str) -> bool:
        """It is published; False when it isn't in our hands."""

    @abstractmethod
    def mark_as_failed(self, item_id: str, error_message: str) -> bool:
        """It was not published; False when it isn't in our hands."""

    @abstractmethod
    def retry_failed(self, max_retries: int = 3) -> int:
        """Failed items that failed less often than this are pending again, after a back-off; how many."""

    @abstractmethod
    def is_duplicate(self, unique_id: str) -> bool:
        """Whether the article is or was in the queue."""

    @abstractmethod
    def get_status(self) -> dict[str, int]:
        """How many items stand in each status."""

    @abstractmethod
    def clean_completed(self) -> int:
        """Remove completed items; how many. What was published stays known."""


class Memory(Protocol):
    """What a publisher writes down about an item in its hands, so that the next one knows how far it got."""

    def now(self) -> datetime:
        """The queue's clock, the same for everyone."""

    def remember(self, item_id: str, name: str, value: Any) -> bool:
        """Write it down; False when the item isn't in our hands."""

    def recall(self, item_id: str, name: str) -> Any:
        """What was written down, by whomever; None when nothing was."""

    def key_of(self, item_id: str) -> str:
        """The same for every attempt to publish the item; another after someone decided to publish it again."""

    def is_cancelled(self, item_id: str) -> bool:
        """Whether someone asked to cancel it."""

    def put_off(self, item_id: str, for_: timedelta) -> bool:
        """Pending again, not before; costs nothing."""

    def hand_back(self, item_id: str) -> bool:
        """Pending again, or failed if someone asked to cancel it."""

    def give_up(self, item_id: str, error_message: str) -> bool:
        """Failed until a person decides: `retry_failed` leaves it alone."""

    def abandoned(self) -> int:
        """How many items are in the hands of publishers that let their lease run out."""
