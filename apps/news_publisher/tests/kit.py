"""Helpers of the publisher's tests."""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.database import Database

from news_publisher import DiscordPublisher, MongoDBQueue, PublishedArticles, QueueItem, QueueService
from news_publisher.articles import Articles
from news_publisher.discord import BotDiscord, Discord
from news_publisher.offline.discord_server import BOT_TOKEN, CHANNEL_ID, DiscordServer
from tests.engine.kit import PATIENCE, until

__all__ = ["PATIENCE", "Desk", "an_article", "an_item", "until"]


def an_item(number: int = 1, **changes: Any) -> QueueItem:
    """An item for the queue."""
    fields: dict[str, Any] = {
        "article_id": f"a{number}",
        "platform": "naver",
        "title": f"제목 {number} 🗞️",
        "url": f"https://news.example/{number}",
        "unique_id": f"naver:a{number}",
        "content": "본문",
        "category": "기술",
    }
    return QueueItem(**(fields | changes))


def an_article(number: int = 1, *, hours_ago: float = 1, **changes: Any) -> dict[str, Any]:
    """Return a document as a crawler writes it."""
    return {
        "_id": f"a{number}",
        "platform": "naver",
        "category": "기술",
        "title": f"제목 {number} 🗞️",
        "url": f"https://news.example/{number}",
        "content": "본문",
        "created_at": datetime.now(UTC) - timedelta(hours=hours_ago),
        **changes,
    }


class Desk:
    """The parts of one publishing program, and the fake Discord that it posts to."""

    def __init__(self, database: Database[Any], new_queue: Callable[..., MongoDBQueue], server: DiscordServer) -> None:
        self.database = database
        self.new_queue = new_queue
        self.server = server
        self.published = PublishedArticles(database["published_articles"])
        self._open = ExitStack()

    def close(self) -> None:
        self._open.close()

    def publisher(self, mode: str = "webhook", queue: MongoDBQueue | None = None, **terms: Any) -> DiscordPublisher:
        """Return a publisher with its own queue, like another program."""
        queue = queue or self.new_queue()
        return DiscordPublisher(self.service(queue), queue, self.connect(mode), self.published, **terms)

    def service(self, queue: MongoDBQueue) -> QueueService:
        return QueueService(queue, Articles(self.database["articles"]), self.published)

    def connect(self, mode: str) -> Discord:
        discord: Discord
        if mode == "bot":
            discord = BotDiscord(BOT_TOKEN, CHANNEL_ID, api=self.server.api)
        else:
            discord = Discord(self.server.webhook)
        self._open.callback(discord.close)
        return discord

    def row(self, unique_id: str) -> dict[str, Any]:
        """Return the raw document in the queue's collection."""
        found = self.database["task_queue"].find_one({"payload.unique_id": unique_id})
        assert found is not None, unique_id
        return dict(found)
