"""Items, statuses and the interface."""

import dataclasses
import inspect
from datetime import datetime

import pytest

from news_publisher import MongoDBQueue, QueueInterface, QueueItem, QueueStatus


@pytest.mark.contract(
    "`QueueInterface` is an abstract class with enqueue, dequeue, mark_as_completed, mark_as_failed, retry_failed, is_duplicate, get_status and clean_completed."
)
def test_queue_interface_is_an_abstract_class_with_enqueue_dequeue_mark_retry_duplicate_status_and_clean() -> None:
    assert inspect.isabstract(QueueInterface)
    parameters = {
        name: list(inspect.signature(getattr(QueueInterface, name)).parameters)[1:]
        for name in QueueInterface.__abstractmethods__
    }
    assert parameters == {
        "enqueue": ["item"],
        "dequeue": ["limit"],
        "mark_as_completed": ["item_id"],
        "mark_as_failed": ["item_id", "error_message"],
        "retry_failed": ["max_retries"],
        "is_duplicate": ["unique_id"],
        "get_status": [],
        "clean_completed": [],
    }
    assert issubclass(MongoDBQueue, QueueInterface)


@pytest.mark.contract(
    "`QueueItem` has article_id, platform, title, url, unique_id, content, category, published_at, status, retry_count, error_message, created_at and updated_at."
)
def test_queue_item_has_its_fields_and_the_optional_ones_may_be_left_out() -> None:
    assert [field.name for field in dataclasses.fields(QueueItem)][:13] == [
        "article_id", "platform", "title", "url", "unique_id", "content", "category", "published_at", "status",
        "retry_count", "error_message", "created_at", "updated_at",
    ]  # fmt: skip
    item = QueueItem("1", "naver", "제목", "https://news.example/1", "naver:1")
    assert (item.content, item.category, item.published_at, item.error_message) == (None, None, None, None)
    assert (item.status, item.retry_count) == (QueueStatus.PENDING, 0)
    assert isinstance(item.created_at, datetime)
    assert item.created_at.tzinfo is not None


@pytest.mark.contract("`QueueStatus` has PENDING, PROCESSING, COMPLETED and FAILED.")
def test_queue_status_has_pending_processing_completed_and_failed() -> None:
    assert [status.name for status in QueueStatus] == ["PENDING", "PROCESSING", "COMPLETED", "FAILED"]
    assert QueueStatus("pending") is QueueStatus.PENDING
