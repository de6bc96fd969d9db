"""The collection `published_articles`: published articles and their message ids, for people and other programs."""

from datetime import datetime
from typing import Any

from pymongo import WriteConcern
from pymongo.collection import Collection


class PublishedArticles:
    """One document per published article; writes are idempotent."""

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection.with_options(write_concern=WriteConcern(j=True))

    def add(self, unique_id: str, url: str, message_id: str | None, published_at: datetime) -> None:
        """Record that an article was published; the first record is kept."""
        record = {"url": url, "message_id": message_id, "published_at": published_at}
        self._collection.update_one({"_id": unique_id}, {"$setOnInsert": record}, upsert=True)

    def has(self, unique_id: str) -> bool:
        """Whether the article was published."""
        return self._collection.count_documents({"_id": unique_id}, limit=1) > 0
