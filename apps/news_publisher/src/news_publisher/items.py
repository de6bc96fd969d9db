"""Items and their statuses, in the terms of this application."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from onerow import Status, Task


class QueueStatus(StrEnum):
    """The status of an item."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


STATUS_OF = {
    Status.WAITING: QueueStatus.PENDING,
    Status.PROCESSING: QueueStatus.PROCESSING,
    Status.COMPLETED: QueueStatus.COMPLETED,
    Status.FAILED: QueueStatus.FAILED,
    Status.CANCELLED: QueueStatus.FAILED,  # a person cancelled it
}
"""onerow status → item status."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class QueueItem:
    """An article in the queue. It is a copy: changing it does not change the queue."""

    article_id: str
    platform: str
    title: str
    url: str
    unique_id: str
    content: str | None = None
    category: str | None = None
    published_at: datetime | None = None
    status: str = QueueStatus.PENDING
    retry_count: int = 0  # number of failures
    error_message: str | None = None
    created_at: datetime = field(default_factory=_now)
    updated_at: datetime = field(default_factory=_now)
    item_id: str | None = None  # the task id, once it is in the queue

    def payload(self) -> dict[str, Any]:
        """Return the payload of the task."""
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
    """Return the item of a task."""
    failed = task.status is Status.FAILED
    cancelled = task.status is Status.CANCELLED
    return QueueItem(
        **task.payload,
        published_at=task.completed_at if task.status is Status.COMPLETED else None,
        status=STATUS_OF[task.status],
        # onerow counts retries, an item counts failures: one more while the task is failed.
        retry_count=task.retry_count + failed,
        error_message="cancelled" if cancelled else task.error,
        created_at=task.created_at,
        updated_at=task.updated_at,
        item_id=task.task_id,
    )
