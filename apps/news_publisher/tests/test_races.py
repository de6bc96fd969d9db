"""Races between several real processes that share only the database."""

import multiprocessing
from collections import Counter
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest

from apps.news_publisher.tests.kit import PATIENCE, Desk, an_item
from news_publisher import DiscordPublisher, MongoDBQueue, PublishedArticles, QueueService
from news_publisher.discord import Discord

PROGRAMS = 3


def take_all(url: str, barrier: Barrier, answers: Any) -> None:
    with MongoDBQueue(url=url) as queue:
        queue.get_status()
        barrier.wait(PATIENCE)
        taken: list[str] = []
        while some := queue.dequeue(3):
            taken += [item.unique_id for item in some]
        marked = [queue.mark_as_completed(name) for name in taken]
        answers.put((taken, marked))


def enqueue_all(url: str, barrier: Barrier, answers: Any) -> None:
    with MongoDBQueue(url=url) as queue:
        queue.get_status()
        barrier.wait(PATIENCE)
        answers.put([queue.enqueue(an_item(number)) for number in range(20)])


def publish_all(url: str, barrier: Barrier, answers: Any, webhook: str) -> None:
    with MongoDBQueue(url=url) as queue:
        published = PublishedArticles(queue.collection.database["published_articles"])
        publisher = DiscordPublisher(QueueService(queue), queue, Discord(webhook), published)
        barrier.wait(PATIENCE)
        answers.put(dict(publisher.run(once=True, limit=2)))


def at_once(program: Any, url: str, *more: Any) -> list[Any]:
    """Start several processes at once; return the answer of each."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(PROGRAMS), context.Queue()
    processes = [context.Process(target=program, args=(url, barrier, answers, *more)) for _ in range(PROGRAMS)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=PATIENCE) for _ in processes]
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0
    return found


@pytest.mark.contract("Of several programs that dequeue at once, one that loses the race for an item skips it.")
def test_of_several_programs_that_take_at_once_each_item_goes_to_one(mongo_url: str, queue: MongoDBQueue) -> None:
    for number in range(60):
        queue.enqueue(an_item(number))
    found = at_once(take_all, mongo_url)
    taken = Counter(name for names, _ in found for name in names)
    assert taken == {f"naver:a{number}": 1 for number in range(60)}
    assert all(all(marked) for _, marked in found)
    assert queue.get_status()["completed"] == 60


@pytest.mark.contract("`enqueue(item)` says whether the item was added.")
def test_of_several_programs_that_enqueue_the_same_at_once_one_adds_it(mongo_url: str, queue: MongoDBQueue) -> None:
    found = at_once(enqueue_all, mongo_url)
    assert [sum(each) for each in zip(*found, strict=True)] == [1] * 20
    assert queue.get_status()["total"] == 20


def test_several_publishers_at_once_publish_everything_once(desk: Desk, mongo_url: str) -> None:
    queue = desk.new_queue()
    for number in range(30):
        queue.enqueue(an_item(number))
    found = at_once(publish_all, mongo_url, desk.server.webhook)
    assert sum(each.get("published", 0) for each in found) == 30
    assert Counter(desk.server.urls) == {f"https://news.example/{number}": 1 for number in range(30)}
