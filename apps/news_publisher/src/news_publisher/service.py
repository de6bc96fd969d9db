"""Operations on the queue of articles: add, claim, settle, retry, clean."""

import logging

from news_publisher.articles import Articles
from news_publisher.interface import QueueInterface
from news_publisher.items import QueueItem
from news_publisher.published import PublishedArticles
from onerow import BadInput

log = logging.getLogger("news_publisher")


class QueueService:
    """Connects the articles and the queue."""

    def __init__(
        self,
        queue: QueueInterface,
        articles: Articles | None = None,
        published: PublishedArticles | None = None,
    ) -> None:
        self._queue = queue
        self._articles = articles
        self._published = published

    def add_articles_from_db(
        self, platform: str | None = None, category: str | None = None, limit: int = 100, hours: float = 24
    ) -> int:
        """Enqueue at most `limit` articles of the last hours, neither published nor enqueued before; return how many.

        Skipped articles don't count toward the limit, so that old articles can't block new ones.
        """
        if self._articles is None:
            raise BadInput("this service has no articles to read: QueueService(queue, articles)", field="articles")
        if limit < 1 or hours <= 0:
            raise BadInput(f"limit must be 1 or more and hours above 0, not {limit} and {hours}", field="limit")
        added = 0
        for item, is_published in self._articles.since(hours, platform, category):
            if is_published or self._is_published(item) or self._queue.is_duplicate(item.unique_id):
                continue
            try:
                added += self._queue.enqueue(item)
            except BadInput as error:  # one invalid article must not block the others
                log.warning("article %s is skipped: %s", item.article_id, error)
            if added == limit:
                break
        return added

    def get_pending_articles(self, limit: int = 10) -> list[QueueItem]:
        """Claim pending articles; the caller must mark each as published or failed."""
        return self._queue.dequeue(limit)

    def mark_article_published(self, unique_id: str) -> bool:
        """Mark an article as published; return False if this program does not hold it."""
        return self._queue.mark_as_completed(unique_id)

    def mark_article_failed(self, unique_id: str, error_message: str) -> bool:
        """Mark an article as failed; return False if this program does not hold it."""
        return self._queue.mark_as_failed(unique_id, error_message)

    def retry_failed_articles(self, max_retries: int = 3) -> int:
        """Make articles pending again that failed fewer than `max_retries` times, after a back-off; return how many."""
        return self._queue.retry_failed(max_retries)

    def get_queue_status(self) -> dict[str, int]:
        """Return the number of articles per status."""
        return self._queue.get_status()

    def clean_old_articles(self) -> int:
        """Remove published articles from the queue; return how many. They are not published again."""
        return self._queue.clean_completed()

    def _is_published(self, item: QueueItem) -> bool:
        return self._published is not None and self._published.has(item.unique_id)
