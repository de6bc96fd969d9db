"""Fixtures: a database and a fake Discord per test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from apps.news_publisher.tests.kit import Desk
from news_publisher import MongoDBQueue
from news_publisher.offline.discord_server import DiscordServer


@pytest.fixture
def database(mongo_url: str) -> Iterator[Database[Any]]:
    """A new database, through a separate client."""
    with MongoClient[Any](mongo_url, tz_aware=True) as client:
        yield client.get_default_database()


@pytest.fixture
def new_queue(database: Database[Any]) -> Iterator[Callable[..., MongoDBQueue]]:
    """Makes queues on the same collection, each like another program."""
    with ExitStack() as opened:
        yield lambda **terms: opened.enter_context(MongoDBQueue(collection=database["task_queue"], **terms))


@pytest.fixture
def queue(new_queue: Callable[..., MongoDBQueue]) -> MongoDBQueue:
    return new_queue()


@pytest.fixture
def discord() -> Iterator[DiscordServer]:
    with DiscordServer() as server:
        yield server


@pytest.fixture
def desk(database: Database[Any], new_queue: Callable[..., MongoDBQueue], discord: DiscordServer) -> Iterator[Desk]:
    desk = Desk(database, new_queue, discord)
    yield desk
    desk.close()
