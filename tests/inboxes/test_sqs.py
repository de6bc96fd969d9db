"""SQS as an inbox, against moto over HTTP."""

import json
import logging
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import boto3
import pytest
from click.testing import CliRunner

from onerow import Addition, BadInput, MessageHandled, Permanent, Pipeline, Queue, Status
from onerow.cli.main import main
from onerow.core.errors import InboxUnavailable, StoreUnavailable
from onerow.core.messages import AddTasks, Message, derived_id
from onerow.engine.events.log import describe
from onerow.engine.receiving.receiver import Receiver
from onerow.engine.receiving.reception import Reception
from onerow.engine.views import Views
from onerow.inboxes.sqs import SqsInbox
from onerow.inboxes.sqs_poll import Poll
from onerow.ports import Inbox, MessageQueue
from onerow.wiring import open_inbox
from tests.engine.kit import ON_SQLITE, everything, until, work, working
from tests.inboxes.sqs_shim import SqsShim, throttled

jobs = Pipeline("jobs")


@jobs.phase(per_key=1)
async def run(job: Any) -> Any:
    if job == "fails":
        raise Permanent("no such file")
    return job


class Sqs:
    """A queue with a dead-letter queue, seen through the shim."""

    def __init__(self, endpoint: str) -> None:
        self.shim = SqsShim(endpoint)
        self.client = boto3.client("sqs", endpoint_url=endpoint)
        self.dead = self._create("dead")
        self.url = self._create("jobs", RedrivePolicy=self.policy("dead", 100))

    def policy(self, name: str, most: int) -> str:
        return json.dumps(
            {"deadLetterTargetArn": f"arn:aws:sqs:eu-central-1:123456789012:{name}", "maxReceiveCount": most}
        )

    def _create(self, name: str, **attributes: str) -> str:
        url: str = self.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return url

    def fifo(self) -> str:
        self._create("dead.fifo", FifoQueue="true")
        return self._create("jobs.fifo", FifoQueue="true", RedrivePolicy=self.policy("dead.fifo", 100))

    def inbox(self, url: str = "", **options: Any) -> SqsInbox:
        return SqsInbox(url or self.url, **({"pipeline": "jobs", "endpoint_url": self.shim.url} | options))

    def send(self, *bodies: object, url: str = "", **terms: Any) -> list[str]:
        """Send messages; return their ids."""
        texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
        send = self.client.send_message
        return [send(QueueUrl=url or self.url, MessageBody=text, **terms)["MessageId"] for text in texts]

    def count(self, url: str = "") -> tuple[int, int]:
        """Return how many messages are visible, and how many are hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client.get_queue_attributes(QueueUrl=url or self.url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def rejected(self, url: str = "") -> dict[str, str]:
        """Return the reasons in the dead-letter queue, by body."""
        found: dict[str, str] = {}
        while messages := self.client.receive_message(
            QueueUrl=url or self.dead, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        ).get("Messages"):
            for message in messages:
                found[message["Body"]] = message["MessageAttributes"]["onerow.reason"]["StringValue"]
        return found


@pytest.fixture
def sqs(sqs_endpoint: str) -> Iterator[Sqs]:
    sqs = Sqs(sqs_endpoint)
    yield sqs
    sqs.shim.close()


def receiver(queue: Queue, inbox: SqsInbox) -> Receiver:
    queue.publish(jobs)
    return Receiver(queue, inbox, "w1")


def held(queue: Queue, inbox: SqsInbox) -> Reception:
    queue.publish(jobs)
    return Reception(queue, inbox, "w1")


def handled(queue: Queue) -> list[MessageHandled]:
    """Return the list to which the events of messages are added from now on."""
    events: list[MessageHandled] = []
    queue.on(MessageHandled, events.append)
    return events


def endings(events: list[MessageHandled]) -> list[tuple[str, bool, bool]]:
    """Return the status of the task, acknowledged and held of each event; forget the events."""
    found = sorted((str(task.status), event.acknowledged, event.held) for event in events for task in event.tasks)
    events.clear()
    return found


def look(queue: Queue, reception: Reception) -> None:
    assert reception.follower is not None
    reception.follower.tick(queue.store.now())


def unavailable(*args: object, **terms: object) -> None:
    raise StoreUnavailable("down")


def payloads(queue: Queue) -> list[object]:
    return sorted((task.payload for task in everything(queue)), key=str)


def test_it_has_the_port_of_an_inbox_and_of_a_message_queue(sqs: Sqs) -> None:
    assert isinstance(sqs.inbox(), Inbox)
    assert isinstance(sqs.inbox(), MessageQueue)


# ── fast mode ──


def test_a_message_is_deleted_once_its_row_is_stored(sqs: Sqs, queue: Queue) -> None:
    receive = receiver(queue, sqs.inbox())
    queue.add(jobs, "there", task_id="t")
    (first, _) = sqs.send({"payload": {"n": 1}, "priority": 3}, {"task_id": "t"})
    counts = receive.receive_available()
    assert (counts.received, counts.added, counts.found) == (2, 1, 1)
    assert (queue.get(derived_id(first)).payload, queue.get(derived_id(first)).priority) == ({"n": 1}, 3)
    assert sqs.count() == (0, 0)
    assert not sqs.shim.made("ChangeMessageVisibilityBatch")


def test_messages_are_received_and_deleted_in_batches_of_ten(sqs: Sqs, sqlite_queue: Queue) -> None:
    sqs.send(*({"payload": number} for number in range(30)))
    receiver(sqlite_queue, sqs.inbox()).receive_available()
    assert payloads(sqlite_queue) == sorted(range(30), key=str)
    assert [len(call["Entries"]) for call in sqs.shim.made("DeleteMessageBatch")] == [10, 10, 10]


def test_a_worker_receives_runs_and_counts(sqs: Sqs, queue: Queue) -> None:
    inbox = sqs.inbox()  # one receiver: moto may give a message to two at once
    queue.inboxes.append(inbox)
    sqs.send({"payload": 1}, {"payload": "fails"}, "{")
    with working(queue, jobs):
        until(lambda: len([task for task in everything(queue) if task.ended]) == 2, "both tasks")
        until(lambda: sqs.count() == (0, 0), "the deletion")
        (line,) = until(lambda: [each for each in Views(queue).workers() if each.inboxes], "the inbox of the worker")
        assert [(state.name, state.error) for state in line.inboxes] == [(inbox.name, "")]
    assert inbox.name == "sqs:123456789012/jobs"
    counts = Views(queue).inboxes()[inbox.name]
    assert (counts.received, counts.added, counts.rejected) == (3, 2, 1)
    assert list(sqs.rejected()) == ["{"]


def test_an_event_for_each_acknowledged_message_has_its_tasks(sqs: Sqs, sqlite_queue: Queue) -> None:
    queue = sqlite_queue
    reception = held(queue, sqs.inbox())
    events = handled(queue)
    for task_id in ("done", "cancelled", "running", "failed"):
        queue.add(jobs, "fails" if task_id == "failed" else 1, task_id=task_id)
    queue.finish("done")
    queue.cancel("cancelled")
    queue.fail("failed", "by hand")
    queue.claim(jobs, ids=["running"])
    sqs.send(*({"task_id": task_id} for task_id in ("done", "cancelled", "running", "failed")), {"payload": 2})
    reception.receivers[0].receive_available()
    expected = [(status, True, False) for status in ("cancelled", "completed", "failed", "processing", "waiting")]
    assert endings(events) == expected
    assert sqs.count() == (0, 0)


def test_a_rejected_message_has_no_event_with_the_task_whose_id_it_gave(sqs: Sqs, sqlite_queue: Queue) -> None:
    queue = sqlite_queue
    events = handled(queue)
    queue.add(jobs, "secret", task_id="t", user_id="a")
    sqs.send({"payload": 1, "task_id": "t", "user_id": "b"})
    assert receiver(queue, sqs.inbox()).receive_available().rejected == 1
    assert events == []


def test_a_worker_until_idle_runs_the_tasks_of_the_messages(sqs: Sqs, sqlite_queue: Queue) -> None:
    sqs.send(*({"payload": number} for number in range(15)))
    sqlite_queue.inboxes.append(sqs.inbox(pipeline=jobs))
    work(sqlite_queue, jobs)
    assert sorted(task.payload for task in everything(sqlite_queue, statuses=["completed"])) == list(range(15))
    assert sqs.count() == (0, 0)


def test_a_verbose_worker_logs_what_became_of_each_message(
    sqs: Sqs, sqlite_queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = sqlite_queue
    queue.inboxes.append(sqs.inbox())
    queue.publish(jobs)
    queue.add(jobs, 1, task_id="t")
    queue.finish("t")
    (message_id,) = sqs.send({"task_id": "t"})
    with caplog.at_level(logging.DEBUG, "onerow"), working(queue, jobs):
        until(lambda: message_id in caplog.text, "the line")
    assert f"message {message_id} acknowledged: task t is completed" in caplog.text


def test_a_stop_does_not_wait_for_a_long_poll(sqs: Sqs) -> None:
    inbox = sqs.inbox()
    answers: list[list[Message]] = []
    thread = threading.Thread(target=lambda: answers.append(inbox.receive(20)))
    began = monotonic()
    thread.start()
    until(lambda: sqs.shim.made("ReceiveMessage"), "the poll")
    inbox.interrupt()
    thread.join(15)
    assert not thread.is_alive()
    assert answers == [[]]
    assert monotonic() - began < 15
    sqs.send({"payload": 1})  # delivered to the abandoned poll
    until(lambda: sqs.shim.made("ChangeMessageVisibilityBatch"), "the return of the message")
    until(lambda: sqs.count() == (1, 0), "the message")


def test_a_message_released_at_a_stop_stays_hidden_from_the_abandoned_poll(sqs: Sqs) -> None:
    inbox = sqs.inbox()
    sqs.send({"payload": 1})
    [message] = inbox.receive(0)
    thread = threading.Thread(target=inbox.receive, args=[20])
    thread.start()
    until(lambda: len(sqs.shim.made("ReceiveMessage")) == 2, "the poll")
    inbox.interrupt()
    thread.join(900)
    inbox.interrupt()  # as by a worker that retires and is stopped then
    inbox.release([message], 0)
    [release] = sqs.shim.made("ChangeMessageVisibilityBatch")
    assert 1 <= release["Entries"][0]["VisibilityTimeout"] <= 21  # as long as the poll may be open


def test_messages_of_an_abandoned_poll_that_can_t_be_returned_are_delivered_again_later() -> None:
    given = threading.Event()

    def give_back(messages: list[Message]) -> None:
        given.set()
        raise InboxUnavailable("down")

    answer = threading.Event()

    def request() -> list[Message]:
        answer.wait(900)
        return [Message("m", "{}")]

    poll = Poll(request, 20, give_back)
    poll.abandon()
    assert poll.result() == []
    answer.set()
    assert given.wait(900)
    poll._thread.join(900)  # an exception in the thread would fail this test


# ── classic mode ──


def test_a_held_message_is_deleted_after_the_work(sqs: Sqs, queue: Queue) -> None:
    reception = held(queue, sqs.inbox(mode="classic"))
    events = handled(queue)
    sqs.send({"payload": 1}, {"payload": 2})
    reception.receivers[0].receive_available()
    cancelled = next(task for task in everything(queue) if task.payload == 2)
    queue.cancel(cancelled.task_id)
    look(queue, reception)
    assert sqs.count() == (0, 1)
    work(queue, jobs)
    look(queue, reception)
    assert sqs.count() == (0, 0)
    assert endings(events) == [("cancelled", True, True), ("completed", True, True)]


def test_a_held_message_stays_hidden_while_its_task_runs_and_while_the_store_is_unavailable(
    sqs: Sqs, sqlite_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    reception = held(sqlite_queue, sqs.inbox(mode="classic", visibility="2s"))
    sqs.send({"payload": 1})
    reception.receivers[0].receive_available()
    began = monotonic()
    while monotonic() - began < 4:  # twice the visibility
        look(sqlite_queue, reception)
        assert sqs.count() == (0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(type(sqlite_queue.store), "fetch", unavailable)
        while monotonic() - began < 6:
            with pytest.raises(StoreUnavailable):
                look(sqlite_queue, reception)
            assert sqs.count() == (0, 1)
    extensions = sqs.shim.made("ChangeMessageVisibilityBatch")
    assert {entry["VisibilityTimeout"] for call in extensions for entry in call["Entries"]} == {2}
    assert len(extensions) >= 2


def test_a_failed_task_s_message_returns_later_each_time_and_is_set_aside_in_the_end(
    sqs: Sqs, sqlite_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    reception = held(sqlite_queue, sqs.inbox(mode="classic"))
    follower = reception.follower
    assert follower is not None
    events = handled(sqlite_queue)
    sqs.send({"payload": "fails"})
    reception.receivers[0].receive_available()
    work(sqlite_queue, jobs)
    look(sqlite_queue, reception)
    (task,) = everything(sqlite_queue)
    assert sqs.count() == (0, 1)
    delays = [call["Entries"][0]["VisibilityTimeout"] for call in sqs.shim.made("ChangeMessageVisibilityBatch")]
    assert delays == [30]
    assert endings(events) == [("failed", False, True)]
    # Later deliveries, as SQS makes them.
    follower.take(Message("m", "{}", deliveries=3, receipt="r"), [task])
    assert sqs.shim.made("ChangeMessageVisibilityBatch")[-1]["Entries"][0]["VisibilityTimeout"] == 120
    follower.take(Message("m", '"again"', deliveries=10, receipt="r"), [task])
    line = f"inbox {events[1].inbox}: message m not acknowledged: task {task.task_id} is failed"
    assert describe(events[1]) == (logging.DEBUG, line)  # set aside, not delivered again
    assert endings(events) == [("failed", False, False)] * 2
    assert "no such file" in sqs.rejected()['"again"']


def test_a_task_that_another_worker_runs_returns_the_message(sqs: Sqs, sqlite_queue: Queue) -> None:
    queue = sqlite_queue
    reception = held(queue, sqs.inbox(mode="classic"))
    events = handled(queue)
    queue.add(jobs, 1, task_id="live")
    queue.add(jobs, 2, task_id="dead")
    queue.claim(jobs, ids=["live"], lease_for="10m")
    queue.claim(jobs, ids=["dead"], lease_for="100ms")
    until(lambda: queue.get("dead").leased_until < queue.store.now(), "the end of the lease")  # type: ignore[operator]
    sqs.send({"task_id": "live"}, {"task_id": "dead"})
    reception.receivers[0].receive_available()
    assert endings(events) == [("processing", False, False)] * 2
    assert sqs.count() == (0, 2)
    released = sqs.shim.made("ChangeMessageVisibilityBatch")
    assert [entry["VisibilityTimeout"] for call in released for entry in call["Entries"]] == [30, 30]


def test_visibility_that_expires_during_the_work_leads_to_one_run(sqs: Sqs, sqlite_queue: Queue) -> None:
    """Another worker receives the message again, because the extensions of the first were refused."""
    queue = sqlite_queue
    first = held(queue, sqs.inbox(mode="classic", visibility="1s"))
    second = Reception(queue, sqs.inbox(mode="classic", visibility="60s"), "w2")
    events = handled(queue)
    sqs.send({"payload": 1})
    first.receivers[0].receive_available()
    with queue.claim(jobs, worker="w1") as (lease,):
        until(lambda: sqs.count() == (1, 0), "the end of the visibility")
        second.receivers[0].receive_available()
        assert endings(events) == [("processing", False, False)]
        lease.complete(1)
    look(queue, first)  # with a stale receipt
    assert endings(events) == [("completed", True, True)]
    (task,) = everything(queue)
    assert (task.status, task.attempt) == (Status.COMPLETED, 1)


def test_a_second_delivery_to_the_holder_replaces_the_receipt(sqs: Sqs, sqlite_queue: Queue) -> None:
    reception = held(sqlite_queue, sqs.inbox(mode="classic", visibility="1s"))
    events = handled(sqlite_queue)
    sqs.send({"payload": 1})
    reception.receivers[0].receive_available()
    until(lambda: sqs.count() == (1, 0), "the end of the visibility")
    reception.receivers[0].receive_available()
    work(sqlite_queue, jobs)
    look(sqlite_queue, reception)
    receipts = [entry["ReceiptHandle"] for call in sqs.shim.made("DeleteMessageBatch") for entry in call["Entries"]]
    assert len(receipts) == 1
    assert endings(events) == [("completed", True, True)]
    assert sqs.count() == (0, 0)


def test_a_full_worker_receives_no_more(sqs: Sqs, sqlite_queue: Queue) -> None:
    reception = held(sqlite_queue, sqs.inbox(mode="classic", in_flight=10))
    sqs.send(*({"payload": number} for number in range(25)))
    (receive,) = reception.receivers
    now = sqlite_queue.store.now()
    receive.tick(now)
    until(lambda: receive.tick(now) > 0, "a full worker")
    assert sum(sqs.count()) == 25
    assert len(everything(sqlite_queue)) < 25


def test_a_classic_worker_holds_its_messages_while_it_drains(sqs: Sqs, sqlite_queue: Queue) -> None:
    slow = Pipeline("slow")
    begun, release = threading.Event(), threading.Event()

    @slow.phase
    def wait(job: Any) -> None:
        begun.set()
        release.wait(900)

    inbox = sqs.inbox(mode="classic", pipeline="slow")
    sqlite_queue.inboxes.append(inbox)
    sqs.send({"payload": 1})
    with working(sqlite_queue, slow, grace="60s") as worker:
        until(begun.is_set, "the work")  # a claimed task that has not begun would be returned
        worker.stop()
        release.set()
        until(lambda: all(task.ended for task in everything(sqlite_queue)), "the end of the work")
    assert sqs.count() == (0, 0)


def test_a_stopped_classic_worker_returns_its_messages(sqs: Sqs, sqlite_queue: Queue) -> None:
    sqlite_queue.inboxes.append(sqs.inbox(mode="classic"))
    sqlite_queue.publish(jobs)
    sqlite_queue.pause(jobs)
    sqs.send({"payload": 1})
    with working(sqlite_queue, jobs):
        until(lambda: everything(sqlite_queue), "the row")
    until(lambda: sqs.count() == (1, 0), "the message")


def test_workers_of_both_modes_on_one_queue_lose_and_double_nothing(sqs: Sqs, sqlite_queue: Queue) -> None:
    sqs.send(*({"payload": number} for number in range(60)))
    other = Queue(sqlite_queue.store)
    sqlite_queue.inboxes.append(sqs.inbox(mode="classic", visibility="2s"))
    other.inboxes.append(sqs.inbox(visibility="2s"))
    with working(sqlite_queue, jobs), working(other, jobs):
        until(lambda: len(everything(other, statuses=["completed"])) == 60, "all tasks")
        until(lambda: sqs.count() == (0, 0), "the deletions")
    assert payloads(other) == sorted(range(60), key=str)
    assert {task.attempt for task in everything(other)} == {1}


# ── FIFO ──


def test_a_fifo_group_becomes_the_limit_key_and_keeps_its_order(sqs: Sqs, queue: Queue) -> None:
    url = sqs.fifo()
    for number in range(12):
        group = "ab"[number % 2]
        sqs.send({"payload": number}, url=url, MessageGroupId=group, MessageDeduplicationId=f"d{number}")
    receiver(queue, sqs.inbox(url)).receive_available()
    tasks = everything(queue)
    assert {task.limit_key: {other.payload % 2 for other in tasks if other.limit_key == task.limit_key} for task in tasks} == {"a": {0}, "b": {1}}  # fmt: skip
    assert {task.unique_key for task in tasks} == {f"d{number}" for number in range(12)}
    ran = []
    while leases := queue.claim(jobs, limit=1):
        ran.append(leases[0].payload)
        leases[0].complete()
    assert [n for n in ran if n % 2] == [1, 3, 5, 7, 9, 11]
    assert [n for n in ran if n % 2 == 0] == [0, 2, 4, 6, 8, 10]
    assert sqs.count(url) == (0, 0)


def test_a_repeated_deduplication_id_finds_the_open_task(sqs: Sqs, sqlite_queue: Queue) -> None:
    url = sqs.fifo()
    receive = receiver(sqlite_queue, sqs.inbox(url))
    facts = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    for message_id in ("m1", "m2"):
        receive.store([Message(message_id, '{"payload": 1}', attributes=facts, receipt="r")])
    assert len(everything(sqlite_queue)) == 1


def test_a_malformed_fifo_message_goes_to_a_fifo_dead_letter_queue(sqs: Sqs, sqlite_queue: Queue) -> None:
    url = sqs.fifo()
    sqs.send("{", url=url, MessageGroupId="g", MessageDeduplicationId="d")
    receiver(sqlite_queue, sqs.inbox(url)).receive_available()
    assert "not JSON" in sqs.rejected(url.replace("jobs.fifo", "dead.fifo"))["{"]


# ── dead letters ──


def test_malformed_oversized_and_forged_messages_go_to_the_dead_letter_queue(sqs: Sqs, queue: Queue) -> None:
    queue.publish(jobs)
    queue.add(jobs, "secret", task_id="t", user_id="a")
    bad = {
        "{": "not JSON",
        json.dumps({"payload": "x" * 3000}): "bytes",
        json.dumps({"pipeline": "nowhere", "payload": 1}): "nowhere",
        json.dumps({"payload": 1, "task_id": "t", "user_id": "b"}): "task_id is taken",
    }
    sqs.send(*bad, {"payload": "good"}, MessageAttributes={"trace": {"DataType": "String", "StringValue": "1"}})
    counts = receiver(queue, sqs.inbox(max_size="2kB")).receive_available()
    assert (counts.rejected, counts.added) == (4, 1)
    found = sqs.rejected()
    assert set(found) == set(bad)
    for body, reason in bad.items():
        assert reason in found[body]
        assert "secret" not in found[body]
    assert sqs.count() == (0, 0)


def test_a_message_without_room_for_the_reason_is_kept_too(sqs: Sqs, sqlite_queue: Queue) -> None:
    refusals = 0

    def refuse(operation: str, terms: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        nonlocal refusals
        if operation == "SendMessage" and terms.get("MessageAttributes"):
            refusals += 1
            answer = {"__type": "com.amazonaws.sqs#InvalidParameterValue", "message": "must be shorter"}
            return 400, answer
        return None

    sqs.shim.change = refuse
    sqs.send("{")
    receiver(sqlite_queue, sqs.inbox()).receive_available()
    assert refusals == 2
    assert (sqs.count(), sqs.count(sqs.dead)) == ((0, 0), (1, 0))


def test_a_given_dead_letter_queue_has_precedence(sqs: Sqs, sqlite_queue: Queue) -> None:
    other = sqs.client.create_queue(QueueName="other")["QueueUrl"]
    sqs.send("{")
    receiver(sqlite_queue, sqs.inbox(dead_letter=other)).receive_available()
    assert (sqs.count(other), sqs.count(sqs.dead)) == ((1, 0), (0, 0))


def test_without_a_dead_letter_queue_a_worker_does_not_start(sqs: Sqs, sqlite_queue: Queue) -> None:
    plain = sqs.client.create_queue(QueueName="plain")["QueueUrl"]
    inbox = sqs.inbox(plain)
    sqlite_queue.inboxes.append(inbox)
    with pytest.raises(BadInput, match=r"(?s)has no dead-letter queue.*redrive policy.*dead_letter=URL"):
        work(sqlite_queue, jobs)
    with pytest.raises(InboxUnavailable, match="no dead-letter queue"):
        inbox.receive(0)


# ── faults of the service ──


def test_parts_of_a_batch_that_fail_are_sent_again(sqs: Sqs, sqlite_queue: Queue) -> None:
    left = 2

    def partly(operation: str, terms: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        nonlocal left
        if operation != "DeleteMessageBatch" or left == 0:
            return None
        left -= 1
        failed = [{"Id": e["Id"], "SenderFault": False, "Code": "InternalError"} for e in terms["Entries"][:2]]
        for entry in terms["Entries"][2:]:
            sqs.client.delete_message(QueueUrl=sqs.url, ReceiptHandle=entry["ReceiptHandle"])
        return 200, {"Successful": [{"Id": e["Id"]} for e in terms["Entries"][2:]], "Failed": failed}

    sqs.shim.change = partly
    sqs.send(*({"payload": number} for number in range(5)))
    inbox = sqs.inbox()
    messages: list[Message] = []
    while len(messages) < 5:
        messages += inbox.receive(0)
    receiver(sqlite_queue, inbox).store(messages)
    assert sqs.count() == (0, 0)
    assert [len(call["Entries"]) for call in sqs.shim.made("DeleteMessageBatch")] == [5, 2, 2]


def test_a_stale_receipt_handle_changes_nothing(sqs: Sqs, sqlite_queue: Queue) -> None:
    def stale(operation: str, terms: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if operation != "DeleteMessageBatch":
            return None
        failed = [{"Id": e["Id"], "SenderFault": True, "Code": "ReceiptHandleIsInvalid"} for e in terms["Entries"]]
        return 200, {"Successful": [], "Failed": failed}

    sqs.shim.change = stale
    sqs.send({"payload": 1})
    receive = receiver(sqlite_queue, sqs.inbox(visibility="1s"))
    receive.receive_available()
    assert len(sqs.shim.made("DeleteMessageBatch")) == 1  # sending it again would not help
    sqs.shim.change = lambda operation, terms: None
    until(lambda: sqs.count() == (1, 0), "the second delivery")
    assert receive.receive_available().duplicate == 1
    assert (len(everything(sqlite_queue)), sqs.count()) == (1, (0, 0))


@pytest.mark.parametrize("operation", ["ReceiveMessage", "DeleteMessageBatch", "SendMessage"])
def test_a_throttled_call_is_retried_with_growing_pauses(sqs: Sqs, sqlite_queue: Queue, operation: str) -> None:
    receive = receiver(sqlite_queue, sqs.inbox(visibility="1s"))
    sqs.shim.change = throttled(operation)
    sqs.send("{" if operation == "SendMessage" else {"payload": 1})
    now = sqlite_queue.store.now()
    pauses: list[float] = []
    while len(pauses) < 2:
        if pause := receive.tick(now):
            pauses.append(pause)
    assert pauses[1] > pauses[0] > 0
    assert "RequestThrottled" in receive.state.error
    sqs.shim.change = lambda name, terms: None

    def finished() -> bool:
        receive.tick(now)
        return sqs.count() == (0, 0)

    until(finished, "the message")
    assert receive.state.error == ""


def test_sqs_that_is_down_is_shown_and_received_from_again(sqs: Sqs, sqlite_queue: Queue) -> None:
    queue = sqlite_queue
    sqs.shim.down = True
    inbox = sqs.inbox()
    queue.inboxes.append(inbox)
    with working(queue, jobs):
        until(lambda: [e for w in Views(queue).workers() for e in w.inboxes if "SQS" in e.error], "the outage in view")
        for command, shown in {"workers": "unavailable", "doctor": "can't receive from"}.items():
            assert shown in CliRunner().invoke(main, [command, "--store", queue.url]).output
        sqs.send({"payload": 1})
        sqs.shim.down = False
        until(lambda: everything(queue, statuses=["completed"]), "the task")
        until(lambda: [e for w in Views(queue).workers() for e in w.inboxes if not e.error], "the end of the outage")
    counts = json.loads(CliRunner().invoke(main, ["inboxes", "--json", "--store", queue.url]).output)
    assert counts[inbox.name]["added"] == 1


@ON_SQLITE
def test_the_store_s_outage_uses_up_one_delivery_only(sqs: Sqs, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the redrive policy would move good messages to the dead-letter queue."""
    receive = receiver(queue, sqs.inbox(visibility="1s"))
    sqs.send({"payload": 1})
    with monkeypatch.context() as patch:
        patch.setattr(type(queue.store), "insert", unavailable)
        patch.setattr(type(queue.store), "check", unavailable)
        failures = 0
        while failures < 5:
            try:
                receive.tick(queue.store.now())
            except StoreUnavailable:
                failures += 1
    before = len(sqs.shim.made("ReceiveMessage"))

    def stored() -> bool:
        receive.tick(queue.store.now())
        return bool(everything(queue))

    until(stored, "the task")
    assert len(sqs.shim.made("ReceiveMessage")) > before
    assert sqs.count() == (0, 0)
    released = sqs.shim.made("ChangeMessageVisibilityBatch")
    assert len(released) == 1


@pytest.mark.parametrize("mode", ["fast", "classic"])
def test_lost_doubled_and_reordered_messages_and_answers_lose_and_double_nothing(
    sqs: Sqs, sqlite_queue: Queue, mode: str
) -> None:
    sqs.send(*({"payload": number} | ({"unique": f"k{number}"} if number % 2 else {}) for number in range(30)))
    sqs.shim.faults = 0.3
    sqlite_queue.inboxes.append(sqs.inbox(mode=mode, visibility="2s", receivers=2))
    with working(sqlite_queue, jobs):
        until(lambda: len(everything(sqlite_queue, statuses=["completed"])) == 30, "all tasks")
        until(lambda: sqs.count() == (0, 0), "the deletions")
    assert payloads(sqlite_queue) == sorted(range(30), key=str)
    assert all((task.attempt, task.generation) == (1, 0) for task in everything(sqlite_queue))
    assert sqs.count(sqs.dead) == (0, 0)


# ── settings ──


def test_an_inbox_can_be_written_as_a_url() -> None:
    inbox = open_inbox(
        "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/videos?mode=classic&receivers=4&visibility=5m"
    )
    assert isinstance(inbox, SqsInbox)
    assert inbox.name == "sqs:eu-west-1/123456789012/videos"
    assert (inbox.mode, inbox.receivers, inbox.hold_for) == ("classic", 4, 300)


@pytest.mark.parametrize(
    "url, options",
    [
        ("sqs:https://sqs.eu-west-1.amazonaws.com", {}),
        ("sqs:https://sqs.eu-west-1.amazonaws.com/1/q?color=red", {}),
        ("sqs:https://sqs.eu-west-1.amazonaws.com/1/q?mode=slow", {}),
        ("sqs:https://sqs.eu-west-1.amazonaws.com/1/q?receivers=0", {}),
        ("sqs:https://sqs.eu-west-1.amazonaws.com/1/q?receivers=some", {}),
        ("sqs:https://sqs.eu-west-1.amazonaws.com/1/q?visibility=13h", {}),
        ("sqs:https://sqs.eu-west-1.amazonaws.com/1/q?dead_letter=dead", {}),
    ],
)
def test_bad_settings_are_errors(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        open_inbox(url, **options)


# ── the user's own format ──


def test_a_function_reads_the_user_s_own_format(sqs: Sqs, sqlite_queue: Queue) -> None:
    def read(message: Message) -> AddTasks:
        name, _, number = message.body.partition(" ")
        return AddTasks(name, tuple(Addition(int(number) + offset) for offset in range(2)))

    sqs.send("jobs 10", "jobs x")
    counts = receiver(sqlite_queue, sqs.inbox(pipeline=None, read=read)).receive_available()
    assert payloads(sqlite_queue) == [10, 11]
    assert counts.rejected == 1
    assert "ValueError" in sqs.rejected()["jobs x"]
