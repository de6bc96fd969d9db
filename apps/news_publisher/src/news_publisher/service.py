"""What the application does with its queue: articles in, articles out, and how each of them ended."""

import logging

from news_publisher.articles import Articles
from news_publisher.interface import QueueInterface
from news_publisher.items import QueueItem
from news_publisher.published import PublishedArticles
from onerow import BadInput

log = logging.getLogger("news_publisher")


class QueueService:
    """Between the articles and the queue."""

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
        """Enqueue articles of the last hours that were neither published nor enqueued before; how many, at most `limit`.

        What is skipped doesn't count, so that old articles can't keep new ones out.
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
            except BadInput as error:  # one article that can't be kept must not keep the others out
                log.warning("article %s is skipped: %s", item.article_id, error)
            if added == limit:
                break
        return added

    def get_pending_articles(self, limit: int = 10) -> list[QueueItem]:
        """Take pending articles; mark each as published or failed."""
        return self._queue.dequeue(limit)

    def mark_article_published(self, unique_id: str) -> bool:
        """It is on Discord; False when it isn't in our hands."""
        return self._queue.mark_as_completed(unique_id)

    def mark_article_failed(self, unique_id: str, error_message: str) -> bool:
        """It is not on Discord; False when it isn't in our hands."""
        return self._queue.mark_as_failed(unique_id, error_message)

    def retry_failed_articles(self, max_retries: int = 3) -> int:
        """Articles that failed less often than this are pending again, after a back-off; how many."""
        return self._queue.retry_failed(max_retries)

    def get_queue_status(self) -> dict[str, int]:
        """How many articles stand in each status."""
        return self._queue.get_status()

    def clean_old_articles(self) -> int:
        """Remove published articles from the queue; how many. They stay known, and are not published again."""
        return self._queue.clean_completed()

    def _is_published(self, item: QueueItem) -> bool:
        return self._published is not None and self._published.has(item.unique_id)
