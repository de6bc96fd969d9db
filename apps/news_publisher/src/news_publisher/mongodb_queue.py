"""The queue of articles in MongoDB: one onerow task per article, claimed with the pull API."""

import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from pymongo import MongoClient
from pymongo.collection import Collection

from news_publisher.interface import QueueInterface
from news_publisher.items import STATUS_OF, QueueItem, QueueStatus, item_of
from onerow import (
    BadInput,
    Filter,
    Leased,
    LeaseLost,
    Permanent,
    Pipeline,
    Puller,
    Queue,
    Retry,
    Status,
    Task,
    UnknownName,
)
from onerow.stores.mongo import MongoStore

DEFAULT_URL = "mongodb://localhost/news"
SECRETS = ("NEWS_DISCORD_WEBHOOK", "NEWS_DISCORD_TOKEN")
INTENT, MESSAGE = "intent", "message"
"""The steps that a publisher records: before it posts, and after."""

news = Pipeline("news", title="{title}")


@news.phase(retry=0)
def publish(article: object) -> None:
    """Never run by a worker: publishers pull the items. Items are retried only by retry_failed."""
    raise Permanent("articles are published by `news publish`, not by a worker of onerow")


class MongoDBQueue(QueueInterface):
    """A queue in a given collection, or in the database of the URL (default: NEWS_MONGO_URL)."""

    def __init__(
        self,
        collection_name: str = "task_queue",
        collection: Collection[Any] | None = None,
        *,
        url: str | None = None,
        lease_for: str | timedelta = "30s",
        retry_wait: str | timedelta = "30s",
    ) -> None:
        self._client: MongoClient[Any] | None = None
        if collection is None:
            self._client = open_client(url or os.environ.get("NEWS_MONGO_URL", DEFAULT_URL))
            collection = self._client.get_default_database(default="news")[collection_name]
        self.collection = collection
        self.collection_name = self.collection.name
        self._lease_for = lease_for
        self._retry_wait = retry_wait if isinstance(retry_wait, str) else retry_wait.total_seconds()
        self.queue = Queue(MongoStore.of(self.collection), secrets=SECRETS).serve(news)

    @cached_property
    def _puller(self) -> Puller:
        self.queue.publish(news)  # so that the onerow commands know the pipeline
        return self.queue.puller(news, lease_for=self._lease_for)

    def close(self) -> None:
        """Hand back items that were not marked. Items of a killed program come back when their lease expires."""
        if "_puller" in self.__dict__:
            self._puller.close()
            del self.__dict__["_puller"]
        self.queue.close()
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> "MongoDBQueue":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ── the queue ──

    def enqueue(self, item: QueueItem) -> bool:
        if not item.unique_id:
            raise BadInput(
                "an item needs a unique_id; it identifies the article among published ones", field="unique_id"
            )
        # The unique key is kept forever, even after the item is removed: an article is published once.
        return self.queue.add_new(news, item.payload(), unique=item.unique_id, unique_for="forever") is not None

    def dequeue(self, limit: int = 10) -> list[QueueItem]:
        return [item_of(lease.task) for lease in self._puller.claim(limit)]

    def mark_as_completed(self, item_id: str) -> bool:
        return self._do(item_id, lambda lease: lease.complete(lease.recall(MESSAGE)))

    def mark_as_failed(self, item_id: str, error_message: str) -> bool:
        return self._do(item_id, lambda lease: lease.fail(error_message))

    def retry_failed(self, max_retries: int = 3) -> int:
        if max_retries < 2:  # every failed item has failed at least once
            return 0
        wait = self._retry_wait
        policy = Retry(max_retries - 1, wait=wait, classes={"auth": True, "timeout": True, "permanent": False})
        return self.queue.retry_failed(Filter(pipeline=news.name), policy=policy).done

    def is_duplicate(self, unique_id: str) -> bool:
        return self._task(unique_id, hidden=True) is not None

    def get_status(self) -> dict[str, int]:
        counts = {status.value: 0 for status in QueueStatus}
        for tally in self.queue.count(Filter(pipeline=news.name)):
            counts[STATUS_OF[tally.status]] += tally.count
        return {**counts, "total": sum(counts.values())}

    def clean_completed(self, older_than: str | timedelta = timedelta(0)) -> int:
        gone = 0
        while some := self.queue.purge(older_than=older_than, statuses=[Status.COMPLETED], pipeline=news.name):
            gone += some
        return gone

    # ── the publisher's records ──

    def now(self) -> datetime:
        return self.queue.store.now()

    def remember(self, item_id: str, name: str, value: Any) -> bool:
        return self._do(item_id, lambda lease: lease.remember(name, value))

    def recall(self, item_id: str, name: str) -> Any:
        lease = self._lease(item_id)
        return None if lease is None else lease.recall(name)

    def key_of(self, item_id: str) -> str:
        lease = self._lease(item_id)
        return "" if lease is None else lease.idempotency_key

    def is_cancelled(self, item_id: str) -> bool:
        lease = self._lease(item_id)
        return lease is not None and lease.cancel_requested

    def put_off(self, item_id: str, for_: timedelta) -> bool:
        return self._do(item_id, lambda lease: lease.snooze(for_))

    def hand_back(self, item_id: str) -> bool:
        return self._do(item_id, lambda lease: lease.hand_back())

    def give_up(self, item_id: str, error_message: str) -> bool:
        return self._do(item_id, lambda lease: lease.fail(error_message, retry=False))

    def abandoned(self) -> int:
        dead = Filter(statuses=frozenset({Status.PROCESSING}), pipeline=news.name, lease_ended_before=self.now())
        return sum(tally.count for tally in self.queue.count(dead))

    # ── decisions by a person ──

    def find(self, item_id: str) -> QueueItem | None:
        """Return the item with this id or unique_id; None if there is none or it was removed."""
        task = self._task(item_id)
        return None if task is None else item_of(task)

    def failed(self, limit: int = 100) -> list[QueueItem]:
        """Return failed items, the latest first."""
        where = Filter(pipeline=news.name, statuses=frozenset({Status.FAILED}))
        return [item_of(task) for task in self.queue.find(where, order="latest", limit=limit).tasks]

    def maybe_published(self) -> list[QueueItem]:
        """Return failed items that may have been published."""
        return [item_of(task) for task in self._all_failed() if _in_doubt(task)]

    def decide_published(self, item_id: str, message_id: str) -> QueueItem:
        """Complete an item, after a person found its message."""
        task = self._failed_task(item_id)
        return item_of(self.queue.finish(task.task_id, result={"message_id": message_id}, note="found on Discord"))

    def decide_again(self, item_id: str) -> QueueItem:
        """Make an item pending again, as if it had never been tried."""
        return item_of(self.queue.replay(self._failed_task(item_id).task_id, note="to be published again"))

    # ── helpers ──

    def _do(self, item_id: str, act: Callable[[Leased], Task]) -> bool:
        """Apply an operation to a held item; return False if this program does not hold it."""
        lease = self._lease(item_id)
        if lease is None:
            return False
        try:
            act(lease)
        except LeaseLost:
            return False
        return True

    def _lease(self, item_id: str) -> Leased | None:
        held = self._puller.held
        return held.get(item_id) or next((each for each in held.values() if each.task.unique_key == item_id), None)

    def _task(self, item_id: str, *, hidden: bool = False) -> Task | None:
        where = Filter(pipeline=news.name, user_id="", held_key=item_id, hidden=hidden)  # answered by the unique index
        if found := self.queue.find(where, limit=1).tasks:
            return found[0]
        return next((task for task in self.queue.store.fetch([item_id]) if hidden or task.purged_at is None), None)

    def _failed_task(self, item_id: str) -> Task:
        task = self._task(item_id)
        if task is None:
            raise UnknownName(f"no item {item_id!r}; look at: news status", field="unique_id")
        if task.status is not Status.FAILED:
            raise BadInput(f"{item_id} is {STATUS_OF[task.status]}; only failed items are decided", field="unique_id")
        return task

    def _all_failed(self) -> Iterator[Task]:
        where, after = Filter(pipeline=news.name, statuses=frozenset({Status.FAILED})), None
        while True:
            page = self.queue.find(where, order="latest", limit=500, after=after)
            yield from page.tasks
            if (after := page.next) is None:
                return


def _in_doubt(task: Task) -> bool:
    known = task.steps.get(task.phase, {})
    return bool(known.get(INTENT, {}).get("result")) and not known.get(MESSAGE, {}).get("result")


def open_client(url: str) -> MongoClient[Any]:
    """Return a client that connects on first use."""
    if not url.startswith(("mongodb://", "mongodb+srv://")):
        raise BadInput("NEWS_MONGO_URL must look like mongodb://host/database", field="NEWS_MONGO_URL")
    # pymongo's default is 30 seconds, too long for a command to report an unavailable server.
    waits = {"serverSelectionTimeoutMS": 5_000, "connectTimeoutMS": 5_000, "socketTimeoutMS": 30_000}
    unsaid: dict[str, Any] = {name: wait for name, wait in waits.items() if name.lower() not in url.lower()}
    return MongoClient(url, connect=False, tz_aware=True, appname="news", **unsaid)
