"""QueueService: crawled articles are enqueued once."""

import logging
from typing import Any

import pytest
from pymongo.database import Database

from apps.news_publisher.tests.kit import Desk, an_article, an_item
from news_publisher import MongoDBQueue, QueueService
from onerow import BadInput


@pytest.fixture
def service(desk: Desk, queue: MongoDBQueue) -> QueueService:
    return desk.service(queue)


@pytest.mark.contract(
    "`add_articles_from_db(platform, category, limit, hours)` enqueues articles of that platform, category and age, at most `limit`, and returns their number."
)
def test_add_articles_from_db_keeps_to_platform_category_limit_and_hours(
    service: QueueService, queue: MongoDBQueue, database: Database[Any]
) -> None:
    database["articles"].insert_many(
        [
            an_article(1, hours_ago=3),
            an_article(2, hours_ago=2),
            an_article(3, hours_ago=1),
            an_article(4, platform="reuters"),
            an_article(5, category="경제"),
            an_article(6, hours_ago=30),
        ]
    )
    assert service.add_articles_from_db(platform="naver", category="기술", limit=2, hours=24) == 2
    assert [item.article_id for item in queue.dequeue(10)] == ["a1", "a2"]
    assert service.add_articles_from_db("naver", "기술", 10, 24) == 1
    assert service.add_articles_from_db(hours=24) == 2
    assert service.add_articles_from_db(hours=48) == 1
    items = {item.article_id: item for item in queue.dequeue(10)}
    assert set(items) == {"a3", "a4", "a5", "a6"}
    assert (items["a4"].platform, items["a4"].unique_id, items["a5"].category) == ("reuters", "reuters:a4", "경제")


@pytest.mark.contract("Articles that are or were in the queue are skipped.")
@pytest.mark.contract("Old articles that are skipped don't use up the limit.")
def test_duplicates_are_skipped_and_do_not_use_up_the_limit(
    service: QueueService, queue: MongoDBQueue, database: Database[Any]
) -> None:
    database["articles"].insert_many([an_article(number, hours_ago=5 - number) for number in range(4)])
    assert service.add_articles_from_db(limit=2) == 2
    for item in queue.dequeue(2):
        queue.mark_as_completed(item.unique_id)
    assert service.clean_old_articles() == 2
    assert service.add_articles_from_db(limit=2) == 2
    assert service.add_articles_from_db(limit=2) == 0
    assert queue.get_status()["total"] == 2


def test_the_same_article_crawled_twice_is_queued_once(service: QueueService, database: Database[Any]) -> None:
    database["articles"].insert_many([an_article(1, unique_id="같은 글"), an_article(2, unique_id="같은 글")])
    assert service.add_articles_from_db() == 1


@pytest.mark.contract("Articles that were published are skipped.")
def test_articles_that_were_published_are_skipped(desk: Desk, service: QueueService, queue: MongoDBQueue) -> None:
    desk.database["articles"].insert_many([an_article(1, published=True), an_article(2), an_article(3)])
    desk.published.add("naver:a2", "https://news.example/2", "77", queue.now())
    assert service.add_articles_from_db() == 1
    assert [item.article_id for item in queue.dequeue(10)] == ["a3"]


@pytest.mark.contract("`get_pending_articles(limit)` takes pending articles.")
@pytest.mark.contract("`mark_article_published(unique_id)` completes an article.")
@pytest.mark.contract("`mark_article_failed(unique_id, error_message)` fails an article.")
@pytest.mark.contract("`get_queue_status()` gives the counts.")
@pytest.mark.contract("`clean_old_articles()` removes published articles from the queue and says how many.")
def test_get_pending_articles_takes_them_and_each_is_marked_published_or_failed(
    service: QueueService, queue: MongoDBQueue
) -> None:
    for number in range(3):
        queue.enqueue(an_item(number))
    first, second = service.get_pending_articles(limit=2)
    assert service.get_queue_status() == {"pending": 1, "processing": 2, "completed": 0, "failed": 0, "total": 3}
    assert service.mark_article_published(first.unique_id) is True
    assert service.mark_article_failed(second.unique_id, error_message="아니오") is True
    assert service.mark_article_published(second.unique_id) is False
    assert service.get_queue_status() == {"pending": 1, "processing": 0, "completed": 1, "failed": 1, "total": 3}
    assert service.clean_old_articles() == 1
    assert service.get_queue_status()["completed"] == 0


@pytest.mark.contract("`retry_failed_articles(max_retries)` brings failed articles back and says how many.")
def test_retry_failed_articles_brings_failed_articles_back(service: QueueService, queue: MongoDBQueue) -> None:
    queue.enqueue(an_item())
    service.get_pending_articles()
    service.mark_article_failed("naver:a1", "no")
    assert service.retry_failed_articles(max_retries=1) == 0
    assert service.retry_failed_articles(max_retries=2) == 1
    assert service.get_queue_status()["pending"] == 1


def test_an_article_that_can_not_be_kept_does_not_keep_the_others_out(
    service: QueueService, queue: MongoDBQueue, database: Database[Any], caplog: pytest.LogCaptureFixture
) -> None:
    database["articles"].insert_many(
        [
            an_article(1, hours_ago=3, unique_id="x" * 600),
            an_article(2, hours_ago=2, content="길다" * 1_000_000),
            {"_id": "bare", "created_at": an_article()["created_at"]},
        ]
    )
    with caplog.at_level(logging.WARNING):
        assert service.add_articles_from_db() == 2
    assert "a1 is skipped" in caplog.text
    assert [item.unique_id for item in queue.dequeue(10)] == ["naver:a2", ":bare"]


@pytest.mark.parametrize("asked", [{"limit": 0}, {"hours": 0}])
def test_a_limit_or_hours_of_nothing_is_refused(service: QueueService, asked: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="limit must be"):
        service.add_articles_from_db(**asked)
