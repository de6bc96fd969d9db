"""MongoDBQueue: adding, claiming, marking, and duplicates."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError
from pymongo.monitoring import CommandListener, CommandStartedEvent

from apps.news_publisher.tests.kit import an_item, until
from news_publisher import MongoDBQueue, QueueInterface, QueueItem, QueueStatus
from onerow import BadInput, Status

NewQueue = Callable[..., MongoDBQueue]


def item(queue: MongoDBQueue, number: int = 1) -> QueueItem:
    found = queue.find(f"naver:a{number}")
    assert found is not None
    return found


@pytest.mark.contract("`MongoDBQueue` is a QueueInterface, made with a collection_name or with a collection.")
def test_a_mongodb_queue_is_made_with_a_collection_name_or_with_a_collection(
    mongo_url: str, database: Database[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWS_MONGO_URL", mongo_url)
    with MongoDBQueue(collection_name="news_queue") as named, MongoDBQueue(collection=database["news_queue"]) as given:
        assert isinstance(named, QueueInterface)
        assert (named.collection_name, given.collection_name) == ("news_queue", "news_queue")
        assert named.enqueue(an_item())
        assert [taken.unique_id for taken in given.dequeue(5)] == ["naver:a1"]
    assert given.collection.count_documents({}) == 1, "the caller's client is still open"


@pytest.mark.contract("`enqueue(item)` says whether the item was added.")
def test_enqueue_says_whether_the_item_was_added(queue: MongoDBQueue) -> None:
    assert queue.enqueue(an_item())
    assert not queue.enqueue(an_item(title="과거의 제목"))
    found = item(queue)
    assert (found.title, found.content, found.category) == ("제목 1 🗞️", "본문", "기술")
    assert (found.status, found.retry_count, found.published_at) == (QueueStatus.PENDING, 0, None)
    assert queue.get_status()["total"] == 1


def test_an_item_without_a_unique_id_is_refused(queue: MongoDBQueue) -> None:
    with pytest.raises(BadInput, match="unique_id"):
        queue.enqueue(an_item(unique_id=""))


@pytest.mark.contract(
    "`dequeue(limit)` returns at most `limit` pending items, the oldest first, and makes them PROCESSING."
)
def test_dequeue_gives_at_most_limit_pending_items_oldest_first_and_they_are_processing(queue: MongoDBQueue) -> None:
    for number in range(5):
        queue.enqueue(an_item(number))
    taken = queue.dequeue(3)
    assert [each.article_id for each in taken] == ["a0", "a1", "a2"]
    assert {each.status for each in taken} == {QueueStatus.PROCESSING}
    assert [each.article_id for each in queue.dequeue(10)] == ["a3", "a4"]
    assert queue.dequeue(10) == []
    assert queue.get_status()["processing"] == 5


@pytest.mark.contract("`mark_as_completed(item_id)` makes an item COMPLETED, records published_at and says True.")
def test_mark_as_completed_makes_it_completed_and_records_published_at(queue: MongoDBQueue) -> None:
    queue.enqueue(an_item())
    (taken,) = queue.dequeue()
    assert taken.item_id is not None
    before = queue.now()
    assert queue.mark_as_completed(taken.item_id) is True
    done = item(queue)
    assert done.status == QueueStatus.COMPLETED
    assert done.published_at is not None
    assert before <= done.published_at <= datetime.now(UTC) + timedelta(minutes=1)
    assert queue.mark_as_completed(taken.item_id) is False


@pytest.mark.contract(
    "`mark_as_failed(item_id, error_message)` makes an item FAILED, keeps the message, counts the failure and says True."
)
@pytest.mark.contract("Nothing that failed is tried again by itself.")
def test_mark_as_failed_makes_it_failed_keeps_the_message_and_nothing_is_tried_by_itself(queue: MongoDBQueue) -> None:
    queue.enqueue(an_item())
    queue.dequeue()
    assert queue.mark_as_failed("naver:a1", "디스코드가 거절했다") is True
    failed = item(queue)
    assert (failed.status, failed.error_message, failed.retry_count) == (QueueStatus.FAILED, "디스코드가 거절했다", 1)
    assert queue.dequeue() == []
    assert queue.queue.get(failed.item_id or "").status is Status.FAILED
    assert queue.mark_as_failed("naver:a1", "again") is False


@pytest.mark.contract(
    "`retry_failed(max_retries)` makes FAILED items PENDING while retry_count < max_retries, and says how many."
)
def test_retry_failed_makes_failed_items_pending_while_retry_count_is_below_max_retries(new_queue: NewQueue) -> None:
    queue = new_queue(retry_wait="0s")
    queue.enqueue(an_item(1))
    queue.enqueue(an_item(2))
    counts = []
    for _ in range(4):
        for taken in queue.dequeue():
            if taken.unique_id == "naver:a1":
                queue.mark_as_failed(taken.unique_id, "no")
            else:
                queue.mark_as_completed(taken.unique_id)
        counts.append((item(queue).retry_count, queue.retry_failed(max_retries=3), item(queue).status))
    assert counts == [(1, 1, "pending"), (2, 1, "pending"), (3, 0, "failed"), (3, 0, "failed")]
    assert item(queue, 2).status == QueueStatus.COMPLETED


@pytest.mark.contract("retry_failed lets an item wait before its next try, longer each time.")
def test_retry_failed_lets_an_item_wait_before_its_next_try_longer_each_time(new_queue: NewQueue) -> None:
    queue = new_queue(retry_wait="10m")
    queue.enqueue(an_item())
    waits = []
    for _ in range(3):
        (taken,) = queue.dequeue()
        queue.mark_as_failed(taken.unique_id, "no")
        now = queue.now()
        assert queue.retry_failed(10) == 1
        assert queue.dequeue() == [], "not yet"
        task = queue.queue.get(taken.item_id or "")
        waits.append((task.run_at - now) / timedelta(minutes=1))
        queue.queue.reschedule(task.task_id, now)
    assert 10 <= waits[0] < 12
    assert 30 <= waits[1] < 34
    assert 90 <= waits[2] < 100


@pytest.mark.contract("`is_duplicate(unique_id)` says whether the article is or was in the queue.")
def test_is_duplicate_says_whether_the_article_is_or_was_in_the_queue(queue: MongoDBQueue) -> None:
    assert not queue.is_duplicate("naver:a1")
    queue.enqueue(an_item())
    assert queue.is_duplicate("naver:a1")
    queue.dequeue()
    queue.mark_as_completed("naver:a1")
    assert queue.is_duplicate("naver:a1")
    queue.clean_completed()
    assert queue.is_duplicate("naver:a1")
    assert not queue.is_duplicate("naver:a2")


@pytest.mark.contract("`get_status()` counts the items of each status, 0 where there are none.")
def test_get_status_counts_the_items_of_each_status(queue: MongoDBQueue) -> None:
    assert queue.get_status() == {"pending": 0, "processing": 0, "completed": 0, "failed": 0, "total": 0}
    for number in range(5):
        queue.enqueue(an_item(number))
    queue.dequeue(4)
    queue.mark_as_completed("naver:a0")
    queue.mark_as_failed("naver:a1", "no")
    assert queue.get_status() == {"pending": 1, "processing": 2, "completed": 1, "failed": 1, "total": 5}


@pytest.mark.contract("`clean_completed()` removes COMPLETED items and no others, and says how many.")
@pytest.mark.contract("What was published is not published again after clean_completed.")
def test_clean_completed_removes_completed_items_only_and_they_are_not_published_again(queue: MongoDBQueue) -> None:
    for number in range(4):
        queue.enqueue(an_item(number))
    queue.dequeue(3)
    queue.mark_as_completed("naver:a0")
    queue.mark_as_failed("naver:a1", "no")
    assert queue.clean_completed() == 1
    assert queue.get_status() == {"pending": 1, "processing": 1, "completed": 0, "failed": 1, "total": 3}
    assert queue.find("naver:a0") is None
    assert not queue.enqueue(an_item(0)), "it was published, whatever was cleaned away"
    assert [taken.unique_id for taken in queue.dequeue(10)] == ["naver:a3"]


@pytest.mark.contract("An item is marked by its item_id or by its unique_id.")
def test_an_item_is_marked_by_its_item_id_or_by_its_unique_id(queue: MongoDBQueue) -> None:
    for number in range(4):
        queue.enqueue(an_item(number))
    first, second, third, fourth = queue.dequeue(4)
    assert queue.mark_as_completed(first.item_id or "")
    assert queue.mark_as_completed(second.unique_id)
    assert queue.mark_as_failed(third.item_id or "", "no")
    assert queue.mark_as_failed(fourth.unique_id, "no")
    assert queue.get_status() == {"pending": 0, "processing": 0, "completed": 2, "failed": 2, "total": 4}


@pytest.mark.contract("Marking an item that someone else took returns False and changes nothing.")
def test_marking_an_item_that_someone_else_took_returns_false_and_changes_nothing(new_queue: NewQueue) -> None:
    holder, stranger = new_queue(), new_queue()
    holder.enqueue(an_item(1))
    holder.enqueue(an_item(2))
    (taken,) = holder.dequeue(1)
    before = holder.collection.find_one({"_id": taken.item_id})
    for name in (taken.item_id or "", taken.unique_id, "naver:a2", "unknown"):
        assert stranger.mark_as_completed(name) is False
        assert stranger.mark_as_failed(name, "stolen") is False
        assert stranger.remember(name, "intent", "stolen") is False
    assert holder.collection.find_one({"_id": taken.item_id}) == before
    assert holder.mark_as_completed(taken.unique_id)


@pytest.mark.contract("An item in PROCESSING whose program crashed comes back and is published.")
@pytest.mark.contract("Who lost an item to another can't mark it any more.")
def test_an_item_of_a_dead_program_comes_back_and_who_lost_it_can_not_mark_it(new_queue: NewQueue) -> None:
    dead, living = new_queue(lease_for="300ms"), new_queue(lease_for="300ms")
    dead.enqueue(an_item())
    dead.dequeue()
    dead._puller._heartbeat.stop()  # like a program that hangs: no more heartbeats
    (taken,) = until(living.dequeue, "the item that was lost")
    assert dead.mark_as_completed("naver:a1") is False
    assert dead.mark_as_failed("naver:a1", "too late") is False
    assert item(living).status == QueueStatus.PROCESSING
    assert living.mark_as_completed(taken.unique_id)
    assert item(living).status == QueueStatus.COMPLETED


@pytest.mark.contract("An item stays in its program's hands for as long as the program lives.")
def test_an_item_stays_in_its_programs_hands_however_long_it_takes(new_queue: NewQueue) -> None:
    slow, other = new_queue(lease_for="300ms"), new_queue(lease_for="300ms")
    slow.enqueue(an_item())
    slow.dequeue()
    begun = slow.now()
    until(lambda: other.dequeue() or slow.now() - begun > timedelta(seconds=2))
    assert other.get_status()["processing"] == 1
    assert slow.mark_as_completed("naver:a1")


def test_closing_hands_back_what_was_not_marked(new_queue: NewQueue) -> None:
    first, second = new_queue(), new_queue()
    first.enqueue(an_item())
    first.dequeue()
    first.close()
    assert [taken.unique_id for taken in second.dequeue()] == ["naver:a1"]


@pytest.mark.contract("A unique index covers unique_id.")
def test_a_unique_index_covers_unique_id(queue: MongoDBQueue) -> None:
    queue.enqueue(an_item())
    row = queue.collection.find_one({"payload.unique_id": "naver:a1"})
    assert row is not None
    assert row["held_key"] == "naver:a1"
    with pytest.raises(DuplicateKeyError, match="task_unique"):
        queue.collection.insert_one(row | {"_id": "another"})


class Commands(CommandListener):
    """Records the commands that a client sends about tasks; a puller also keeps its entry in the list of workers."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command.get(event.command_name) == "task_queue":
            self.sent.append(event.command_name)

    def succeeded(self, event: Any) -> None: ...

    def failed(self, event: Any) -> None: ...


@pytest.mark.contract("An item is taken by one find_one_and_update.")
def test_an_item_is_taken_by_one_find_one_and_update(mongo_url: str) -> None:
    commands = Commands()
    with (
        MongoClient[Any](mongo_url, event_listeners=[commands]) as client,
        MongoDBQueue(collection=client.get_default_database()["task_queue"]) as queue,
    ):
        queue.enqueue(an_item(1))
        queue.enqueue(an_item(2))
        queue.dequeue(1)
        commands.sent.clear()
        assert [taken.unique_id for taken in queue.dequeue(1)] == ["naver:a2"]
        assert [name for name in commands.sent if name not in ("find", "aggregate")] == ["findAndModify"]


def test_a_cancelled_item_shows_as_failed_and_says_so(queue: MongoDBQueue) -> None:
    queue.enqueue(an_item())
    queue.queue.cancel(item(queue).item_id or "")
    assert (item(queue).status, item(queue).error_message) == (QueueStatus.FAILED, "cancelled")
    assert queue.get_status()["failed"] == 1
    assert queue.retry_failed(10) == 0
