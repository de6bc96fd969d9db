"""The receiver: read a message, store its row, then acknowledge it."""

from collections.abc import Sequence
from typing import Any

import pytest

from onerow import Filter, Pipeline, Queue, Status
from onerow.core.errors import InboxUnavailable, StoreUnavailable, UnknownName
from onerow.core.messages import Message
from onerow.engine.events.events import InboxUnreachable
from onerow.engine.receiving.receiver import Receiver
from onerow.engine.receiving.reception import Reception
from onerow.engine.views import Views
from onerow.ports import Inbox
from tests.engine.kit import ON_SQLITE, until, work, working
from tests.inboxes.fake import FakeInbox

jobs = Pipeline("jobs")


@jobs.phase
async def run(job: Any) -> Any:
    return job


def receiver(queue: Queue, inbox: FakeInbox) -> Receiver:
    queue.publish(jobs)
    return Receiver(queue, inbox, "w1")


def payloads(queue: Queue) -> list[object]:
    return sorted((task.payload for task in queue.find(Filter(pipeline="jobs"), limit=1000).tasks), key=str)


def test_the_fake_has_the_port_of_an_inbox() -> None:
    assert isinstance(FakeInbox(), Inbox)


def test_a_message_with_a_payload_becomes_a_task(queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    inbox.send("m1", {"payload": {"n": 1}, "priority": 5, "unique": "k", "user_id": "u"})
    counts = receiver(queue, inbox).receive_available()
    (task,) = queue.find().tasks
    assert (task.payload, task.priority, task.unique_key, task.user_id) == ({"n": 1}, 5, "k", "u")
    assert (counts.received, counts.added) == (1, 1)
    assert inbox.acknowledged == ["m1"]


def test_a_second_delivery_changes_nothing(queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    inbox.send("m1", {"payload": 1})
    inbox.send("m2", {"payload": 1, "task_id": "given"})
    receive = receiver(queue, inbox)
    receive.receive_available()
    before = {task.task_id: task.version for task in queue.find().tasks}
    inbox.send("m1", {"payload": 1})
    inbox.send("m2", {"payload": 1, "task_id": "given"})
    counts = receive.receive_available()
    assert (counts.duplicate, counts.added, counts.found) == (2, 0, 0)
    assert {task.task_id: task.version for task in queue.find().tasks} == before


def test_a_task_that_another_message_has_added_is_found(queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    receive = receiver(queue, inbox)
    inbox.send("m1", {"payload": 1, "unique": "k"})
    inbox.send("m2", {"payload": 2, "unique": "k"})
    inbox.send("m3", {"payload": 1, "task_id": "t"})
    inbox.send("m4", {"payload": 1, "task_id": "t"})
    counts = receive.receive_available()
    assert (counts.added, counts.found, counts.duplicate) == (2, 2, 0)
    assert len(queue.find().tasks) == 2


def test_a_message_that_names_a_task_is_done_once_the_row_exists(queue: Queue) -> None:
    inbox = FakeInbox()
    receive = receiver(queue, inbox)
    inbox.send("m1", {"task_id": "t"})
    receive.store(inbox.receive(0))
    assert inbox.acknowledged == []  # the message has overtaken the row
    queue.add(jobs, 1, task_id="t")
    receive.store(inbox.receive(0))
    assert inbox.acknowledged == ["m1"]


def test_a_message_that_names_no_task_is_rejected_after_five_deliveries(queue: Queue) -> None:
    inbox = FakeInbox()
    receive = receiver(queue, inbox)
    inbox.send("m1", {"task_id": "t"})
    for _ in range(5):
        assert not inbox.rejected
        receive.store(inbox.receive(0))
    assert "no task 't'" in inbox.rejected["m1"]


BAD = {
    "no JSON": "{",
    "no object": "[1]",
    "deep": "[" * 100_000,
    "no pipeline": '{"payload": 1}',
    "unknown pipeline": '{"pipeline": "nowhere", "payload": 1}',
    "unknown key": '{"pipeline": "jobs", "paylod": 1}',
    "wrong type": '{"pipeline": "jobs", "priority": "high"}',
    "bad priority": '{"pipeline": "jobs", "priority": 1000}',
    "bad time": '{"pipeline": "jobs", "run_at": "tomorrow"}',
    "NUL": '{"pipeline": "jobs", "payload": "a\\u0000b"}',
    "large number": '{"pipeline": "jobs", "payload": 99999999999999999999999}',
    "id with a slash": '{"pipeline": "jobs", "task_id": "a/b"}',
    "empty id": '{"pipeline": "jobs", "task_id": ""}',
    "empty id of a task": '{"task_id": ""}',
    "empty pipeline": '{"pipeline": "", "payload": 1}',
    "signal without a name": '{"task_id": "t", "signal": 3}',
    "cancel false": '{"task_id": "t", "cancel": false}',
}


def test_bad_messages_are_set_aside_and_the_others_are_stored(queue: Queue) -> None:
    inbox = FakeInbox()
    receive = receiver(queue, inbox)
    for number, (name, text) in enumerate(BAD.items()):
        inbox.send_text(name, text)
        inbox.send(f"good{number}", {"pipeline": "jobs", "payload": number})
    counts = receive.receive_available()
    assert set(inbox.rejected) == set(BAD)
    assert all(inbox.rejected.values())
    assert (counts.added, counts.rejected) == (len(BAD), len(BAD))
    assert payloads(queue) == sorted(range(len(BAD)), key=str)


def test_a_message_for_another_users_task_id_is_rejected(queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    receive = receiver(queue, inbox)
    queue.add(jobs, "secret", task_id="t", user_id="a")
    inbox.send("m1", {"payload": 1, "task_id": "t", "user_id": "b"})
    receive.receive_available()
    assert "secret" not in inbox.rejected["m1"]
    assert queue.get("t").payload == "secret"


def test_a_signal_reaches_its_task_once(queue: Queue) -> None:
    waits = Pipeline("waits")
    waits.wait_for("answer", signal="ready")
    inbox = FakeInbox()
    receive = receiver(queue, inbox)
    task = queue.add(waits, None)
    for _ in range(2):
        inbox.send("m1", {"task_id": task.task_id, "signal": "ready", "payload": {"n": 1}})
        receive.receive_available()
    work(queue, waits)
    assert queue.get(task.task_id).status is Status.COMPLETED
    assert queue.get(task.task_id).results["answer"] == {"n": 1}


def test_a_cancel_message_cancels(queue: Queue) -> None:
    inbox = FakeInbox()
    receive = receiver(queue, inbox)
    queue.add(jobs, 1, task_id="t")
    inbox.send("m1", {"task_id": "t", "cancel": True})
    receive.receive_available()
    assert queue.get("t").status is Status.CANCELLED


@pytest.mark.parametrize("seed", range(5))
def test_lost_doubled_and_reordered_messages_and_answers_lose_and_double_nothing(queue: Queue, seed: int) -> None:
    inbox = FakeInbox("jobs", seed=seed, faults=0.3)
    for number in range(60):
        inbox.send(f"m{number}", {"payload": number} | ({"unique": f"k{number}"} if number % 2 else {}))
    receive = receiver(queue, inbox)
    while inbox.waiting:
        receive.store(inbox.receive(0))
        work(queue, jobs)
    assert payloads(queue) == sorted(range(60), key=str)
    assert {task.status for task in queue.find(limit=100).tasks} == {Status.COMPLETED}
    assert all(task.attempt <= 1 and task.generation == 0 for task in queue.find(limit=100).tasks)


def test_messages_are_not_acknowledged_while_the_store_is_unavailable(
    sqlite_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = FakeInbox("jobs")
    receive = receiver(sqlite_queue, inbox)
    inbox.send("m1", {"payload": 1})

    def unavailable(*args: object, **terms: object) -> None:
        raise StoreUnavailable("down")

    with monkeypatch.context() as patch:
        patch.setattr(type(sqlite_queue.store), "insert", unavailable)
        with pytest.raises(StoreUnavailable):
            receive.store(inbox.receive(0))
    assert inbox.acknowledged == []
    receive.store(inbox.receive(0))
    assert payloads(sqlite_queue) == [1]


class RecordingInbox(FakeInbox):
    """Records releases; `acknowledge` fails for the messages in `refused`."""

    def __init__(self) -> None:
        super().__init__("jobs")
        self.released: list[str] = []
        self.refused: set[str] = set()

    def acknowledge(self, messages: Sequence[Message]) -> None:
        if self.refused & {message.message_id for message in messages}:
            raise InboxUnavailable("fake: no answer")
        super().acknowledge(messages)

    def release(self, messages: Sequence[Message], after: float) -> None:
        self.released += [message.message_id for message in messages]


class HoldingInbox(RecordingInbox):
    """A message queue whose messages are acknowledged after the work."""

    receivers, hold_for, in_flight = 1, 30.0, 10

    def check(self) -> None:
        pass


def test_an_error_after_the_acknowledgement_releases_nothing(
    sqlite_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = RecordingInbox()
    receive = receiver(sqlite_queue, inbox)
    inbox.send("m1", {"payload": 1})

    def unavailable(*args: object) -> None:
        raise StoreUnavailable("down")

    monkeypatch.setattr(receive, "_count_lag", unavailable)
    with pytest.raises(StoreUnavailable):
        receive.store(inbox.receive(0))
    assert (inbox.acknowledged, inbox.released) == (["m1"], [])


def test_an_error_releases_neither_held_nor_rejected_messages(sqlite_queue: Queue) -> None:
    inbox = HoldingInbox()
    sqlite_queue.publish(jobs)
    sqlite_queue.add(jobs, 0, task_id="done")
    sqlite_queue.finish("done")
    reception = Reception(sqlite_queue, inbox, "w1")
    inbox.send_text("bad", "{")
    inbox.send("held", {"payload": 1})
    inbox.send("refused", {"task_id": "done"})
    inbox.send("after", {"task_id": "done"})
    inbox.refused = {"refused"}
    with pytest.raises(InboxUnavailable):
        reception.receivers[0].store(inbox.receive(0))
    assert set(inbox.rejected) == {"bad"}
    assert inbox.released == ["refused", "after"]
    work(sqlite_queue, jobs)
    assert reception.follower is not None
    reception.follower.tick(sqlite_queue.store.now())
    assert inbox.acknowledged == ["held"]


def test_a_worker_receives_runs_and_counts(queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    queue.inboxes.append(inbox)
    inbox.send("m1", {"payload": 1})
    inbox.send_text("m2", "{")
    with working(queue, jobs):
        until(lambda: [task for task in queue.find().tasks if task.ended], "the task of the message")
        until(lambda: "m2" in inbox.rejected, "the rejection")
        (line,) = until(lambda: [each for each in Views(queue).workers() if each.inboxes], "the inbox of the worker")
        assert [state.name for state in line.inboxes] == ["fake"]
    counts = Views(queue).inboxes()["fake"]
    assert (counts.received, counts.added, counts.rejected) == (2, 1, 1)


def test_a_worker_until_idle_runs_what_its_inboxes_have(queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    queue.inboxes.append(inbox)
    for number in range(25):
        inbox.send(f"m{number}", {"payload": number})
    work(queue, jobs)
    assert {task.status for task in queue.find(limit=100).tasks} == {Status.COMPLETED}
    assert payloads(queue) == sorted(range(25), key=str)


def test_a_worker_until_idle_waits_for_an_inbox_that_is_unavailable(sqlite_queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    inbox.unavailable = True
    inbox.send("m1", {"payload": 1})
    sqlite_queue.inboxes.append(inbox)
    sqlite_queue.on(InboxUnreachable, lambda event: setattr(inbox, "unavailable", False))
    work(sqlite_queue, jobs)
    assert [task.status for task in sqlite_queue.find().tasks] == [Status.COMPLETED]


def test_an_unavailable_inbox_is_shown_and_retried(queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    inbox.unavailable = True
    queue.publish(jobs)
    receive = Receiver(queue, inbox, "w1")
    now = queue.store.now()
    first, second = receive.tick(now), receive.tick(now)
    assert 0 < first < second
    assert receive.state.error == "fake: no answer"
    inbox.unavailable = False
    assert receive.tick(now) == 0
    assert receive.state.error == ""


@ON_SQLITE
def test_why_names_an_unavailable_inbox_if_there_is_no_such_task(queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    inbox.unavailable = True
    queue.inboxes.append(inbox)
    with working(queue, jobs):
        until(lambda: any(each.error for line in Views(queue).workers() for each in line.inboxes), "the inbox's error")
        with pytest.raises(UnknownName, match=r"no task 't', and an inbox is unavailable \(fake: fake: no answer\)"):
            Views(queue).why("t")


def test_an_addition_of_a_message_keeps_its_metadata(queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    receive = receiver(queue, inbox)
    inbox.send("m1", {"payload": 1, "task_id": "t", "metadata": {"a": 1}})
    receive.receive_available()
    assert queue.get("t").metadata == {"a": 1, "inbox": "fake", "message": "message m1"}
