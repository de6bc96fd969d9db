"""Buffers crawled news articles in MongoDB and publishes each of them once to Discord."""

from news_publisher.articles import Articles
from news_publisher.interface import QueueInterface
from news_publisher.items import QueueItem, QueueStatus
from news_publisher.mongodb_queue import MongoDBQueue
from news_publisher.published import PublishedArticles
from news_publisher.publisher import DiscordPublisher
from news_publisher.service import QueueService

__all__ = [
    "Articles",
    "DiscordPublisher",
    "MongoDBQueue",
    "PublishedArticles",
    "QueueInterface",
    "QueueItem",
    "QueueService",
    "QueueStatus",
]
