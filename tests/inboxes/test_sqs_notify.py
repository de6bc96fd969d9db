"""Messages that name added tasks: sent after the add, or after the caller's commit, by a worker."""

import json
import sqlite3

import psycopg
import pytest

from onerow import Queue, Status
from onerow.engine.events.events import TaskAdded
from onerow.inboxes.sqs_notify import SqsNotifier
from tests.engine.kit import until, working
from tests.inboxes.killed_receiver import jobs
from tests.inboxes.test_sqs import Sqs, receiver, sqs

__all__ = ["sqs"]


def named(sqs: Sqs, url: str = "") -> list[str]:
    """Return the tasks that visible messages name."""
    found = sqs.client.receive_message(QueueUrl=url or sqs.url, VisibilityTimeout=0, MaxNumberOfMessages=10)
    return [json.loads(message["Body"])["task_id"] for message in found.get("Messages", [])]


def notifier(sqs: Sqs, url: str = "") -> SqsNotifier:
    return SqsNotifier(url or sqs.url, endpoint_url=sqs.shim.url)


def test_an_add_sends_a_message_that_names_the_task(sqs: Sqs, sqlite_queue: Queue) -> None:
    notify = notifier(sqs)
    task = sqlite_queue.add(jobs, 1, notify=notify)
    assert named(sqs) == [task.task_id]
    assert receiver(sqlite_queue, sqs.inbox()).receive_available().found == 1
    notify.send([task] * 12)
    assert [len(call["Entries"]) for call in sqs.shim.made("SendMessageBatch")] == [1, 10, 2]


def test_the_hook_sends_a_message_after_each_add(sqs: Sqs, sqlite_queue: Queue) -> None:
    sqlite_queue.on(TaskAdded, notifier(sqs))
    task = sqlite_queue.add(jobs, 1)
    assert named(sqs) == [task.task_id]


def test_an_add_of_many_sends_one_batch_and_nothing_for_tasks_that_existed(sqs: Sqs, sqlite_queue: Queue) -> None:
    notify = notifier(sqs)
    first = sqlite_queue.add(jobs, 0, unique="a", notify=notify)
    assert sqlite_queue.add(jobs, 0, unique="a", notify=notify).task_id == first.task_id
    assert sqlite_queue.add_new(jobs, 0, unique="a", notify=notify) is None
    tasks = sqlite_queue.add_many(jobs, range(3), notify=notify)
    assert sorted(named(sqs)) == sorted(task.task_id for task in [first, *tasks])
    assert [len(call["Entries"]) for call in sqs.shim.made("SendMessageBatch")] == [1, 3]


def test_an_add_succeeds_while_sqs_is_down_and_says_so_in_the_log(
    sqs: Sqs, sqlite_queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    sqs.shim.down = True
    sqlite_queue.log_lines.start("test")
    task = sqlite_queue.add(jobs, 1, notify=notifier(sqs))
    sqlite_queue.log_lines.stop("test")
    assert sqlite_queue.get(task.task_id).status is Status.WAITING
    (line,) = [record.getMessage() for record in caplog.records if record.name == "onerow"]
    assert "no message sent for 1 added tasks" in line


def test_in_a_transaction_on_sqlite_a_worker_sends_the_message_after_the_commit(
    sqs: Sqs, sqlite_queue: Queue, sqlite_url: str
) -> None:
    notify = notifier(sqs)
    sqlite_queue.publish(jobs)
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    with working(sqlite_queue, notify.pipeline):
        connection.execute("BEGIN")
        sqlite_queue.add(jobs, "rolled back", tx=connection, notify=notify)
        connection.rollback()
        connection.execute("BEGIN")
        task = sqlite_queue.add(jobs, "committed", tx=connection, notify=notify)
        assert named(sqs) == []
        connection.commit()
        until(lambda: named(sqs) == [task.task_id], "the message")
    connection.close()


def test_in_a_transaction_on_postgresql_a_worker_sends_the_message_after_the_commit(
    sqs: Sqs, postgres_url: str
) -> None:
    url = sqs.fifo()
    queue, notify = Queue(postgres_url), notifier(sqs, url)
    queue.publish(jobs)
    with psycopg.connect(postgres_url) as connection, working(queue, notify.pipeline):
        tasks = queue.add_many(jobs, range(3), tx=connection, limit_key="account 1", notify=notify)
        assert named(sqs, url) == []
        connection.commit()
        # A FIFO queue hides the group while one of its messages is in work: at least the first is there.
        until(lambda: named(sqs, url)[:1] == [tasks[0].task_id], "the messages")
        until(lambda: sum(sqs.count(url)) == 3, "all messages")
    queue.close()
