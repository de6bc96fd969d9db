"""Wires the parts of the application according to the configuration."""

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from pymongo.database import Database

from news_publisher.articles import Articles
from news_publisher.config import Config
from news_publisher.mongodb_queue import MongoDBQueue, open_client
from news_publisher.published import PublishedArticles
from news_publisher.publisher import DiscordPublisher
from news_publisher.service import QueueService


class App:
    """The application, as a context manager: `with App(config) as app`; on exit, leased items are handed back."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._open = ExitStack()
        client = self._open.enter_context(open_client(config.mongo_url))
        self.database: Database[Any] = client.get_default_database(default="news")
        self.queue = self._open.enter_context(
            MongoDBQueue(collection=self.database[config.collection], lease_for=config.lease)
        )
        self.published = PublishedArticles(self.database["published_articles"])
        self.service = QueueService(self.queue, Articles(self.database["articles"]), self.published)

    def publisher(self, stop: threading.Event) -> DiscordPublisher:
        """Return a publisher of pending items."""
        discord = self._config.discord()
        self._open.callback(discord.close)
        return DiscordPublisher(
            self.service, self.queue, discord, self.published, on_doubt=self._config.on_doubt, stop=stop
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
