"""One article on its way to Discord, in this application's own words."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from onerow import Status, Task


class QueueStatus(StrEnum):
    """Where an item stands."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


STATUS_OF = {
    Status.WAITING: QueueStatus.PENDING,
    Status.PROCESSING: QueueStatus.PROCESSING,
    Status.COMPLETED: QueueStatus.COMPLETED,
    Status.FAILED: QueueStatus.FAILED,
    Status.CANCELLED: QueueStatus.FAILED,  # it won't be published, because someone said so
}
"""The queue's word → ours."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class QueueItem:
    """An article in the queue; a copy, so that changing it changes nothing."""

    article_id: str
    platform: str
    title: str
    url: str
    unique_id: str
    content: str | None = None
    category: str | None = None
    published_at: datetime | None = None
    status: str = QueueStatus.PENDING
    retry_count: int = 0  # how often it failed
    error_message: str | None = None
    created_at: datetime = field(default_factory=_now)
    updated_at: datetime = field(default_factory=_now)
    item_id: str | None = None  # the queue's own name for it, once it is there

    def payload(self) -> dict[str, Any]:
        """What the queue keeps of it."""
        return {
            "article_id": self.article_id,
            "platform": self.platform,
            "title": self.title,
            "url": self.url,
            "unique_id": self.unique_id,
            "content": self.content,
            "category": self.category,
        }


def item_of(task: Task) -> QueueItem:
    """The item that a task stands for."""
    failed = task.status is Status.FAILED
    cancelled = task.status is Status.CANCELLED
    return QueueItem(
        **task.payload,
        published_at=task.completed_at if task.status is Status.COMPLETED else None,
        status=STATUS_OF[task.status],
        # The queue counts new tries, we count failures: one more, until the failed one is tried again.
        retry_count=task.retry_count + failed,
        error_message="cancelled" if cancelled else task.error,
        created_at=task.created_at,
        updated_at=task.updated_at,
        item_id=task.task_id,
    )
