"""The collection `articles` that crawlers fill, read as items for the queue."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.collection import Collection

from news_publisher.items import QueueItem

_LONGEST = 100_000  # characters of an article that the queue stores; Discord shows 4,096


class Articles:
    """Read-only access to articles."""

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection

    def since(self, hours: float, platform: str | None, category: str | None) -> Iterator[tuple[QueueItem, bool]]:
        """Yield (the article as an item, whether it is marked as published), oldest first."""
        where: dict[str, Any] = {"created_at": {"$gte": datetime.now(UTC) - timedelta(hours=hours)}}
        if platform is not None:
            where["platform"] = platform
        if category is not None:
            where["category"] = category
        for row in self._collection.find(where).sort([("created_at", 1), ("_id", 1)]):
            yield article_item(row), bool(row.get("published"))


def article_item(row: Mapping[str, Any]) -> QueueItem:
    """Convert an article to an item; without a unique_id, one is made from platform and id."""
    article_id = str(row.get("article_id") or row["_id"])
    platform = str(row.get("platform") or "")
    content = row.get("content")
    category = row.get("category")
    return QueueItem(
        article_id=article_id,
        platform=platform,
        title=str(row.get("title") or ""),
        url=str(row.get("url") or ""),
        unique_id=str(row.get("unique_id") or f"{platform}:{article_id}"),
        content=None if content is None else str(content)[:_LONGEST],
        category=None if category is None else str(category),
    )
