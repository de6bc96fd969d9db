"""Reading functions of users that return nothing, exit, hang or end their process: the other messages become tasks."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onerow import Pipeline, Queue, Status
from onerow.core.addition import Addition
from onerow.core.messages import AddTasks, BadMessage, CancelTask, FindTask, Message, Request, SendSignal, check_request
from onerow.engine.events.events import InboxBack, InboxUnreachable
from onerow.engine.receiving import receiver as receiving
from onerow.engine.receiving.deaths import ReadingNote
from onerow.engine.receiving.receiver import Receiver
from onerow.engine.views import Views
from tests.engine.kit import everything, until, working
from tests.inboxes.fake import FakeInbox
from tests.inboxes.test_sqs import Sqs, sqs

__all__ = ["sqs"]

ROOT = Path(__file__).resolve().parents[2]
jobs = Pipeline("jobs")


@jobs.phase
async def run(job: Any) -> Any:
    return job


class Reading(FakeInbox):
    """An inbox whose messages a function reads; a message 'bad' gets to `bad`."""

    def __init__(self, bad: Callable[[], Any]) -> None:
        super().__init__()
        self._bad = bad

    def read(self, message: Message) -> Request:
        found: Request = self._bad() if message.message_id == "bad" else AddTasks("jobs", (Addition(message.body),))
        return found


def raises(error: BaseException) -> Any:
    raise error


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "returned NoneType, not AddTasks, FindTask, SendSignal or CancelTask"),
    "text": (lambda: "jobs", "returned str"),
    "pipeline": (lambda: AddTasks(jobs, ()), "returned AddTasks with values of wrong types"),  # type: ignore[arg-type]
    "dict": (lambda: AddTasks("jobs", ({"n": 1},)), "AddTasks with values of wrong types"),  # type: ignore[arg-type]
    "number": (lambda: FindTask(7), "FindTask with values of wrong types"),  # type: ignore[arg-type]
    "no id": (lambda: CancelTask(None), "CancelTask with values of wrong types"),  # type: ignore[arg-type]
    "no name": (lambda: SendSignal("t", None), "SendSignal with values of wrong types"),  # type: ignore[arg-type]
    "exit": (lambda: sys.exit(3), "could not be read: SystemExit: 3"),
    "interrupt": (lambda: raises(KeyboardInterrupt()), "could not be read: KeyboardInterrupt"),
    "own": (lambda: raises(BaseException("own")), "could not be read: BaseException: own"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_message_that_a_function_cannot_read_is_rejected_and_the_worker_goes_on(
    sqlite_queue: Queue, case: str
) -> None:
    queue = sqlite_queue
    bad, reason = WRONG[case]
    inbox = Reading(bad)
    queue.inboxes.append(inbox)
    inbox.send_text("bad", "")
    inbox.send_text("good", "1")
    with working(queue, jobs):
        until(lambda: "bad" in inbox.rejected, "the rejection")
        inbox.send_text("later", "2")
        until(lambda: len(everything(queue, statuses=["completed"])) == 2, "the tasks of the other messages")
    assert reason in inbox.rejected["bad"]


def test_every_request_is_accepted() -> None:
    for request in (
        AddTasks("jobs", (Addition(1),)), AddTasks("", ()), FindTask("t"), SendSignal("t", "go"), CancelTask("t"),
    ):  # fmt: skip
        assert check_request(request) is request


def test_ctrl_c_while_a_message_is_read_in_the_main_thread_is_not_a_rejection(sqlite_queue: Queue) -> None:
    inbox = Reading(lambda: raises(KeyboardInterrupt()))
    inbox.send_text("bad", "")
    with pytest.raises(KeyboardInterrupt):
        Receiver(sqlite_queue, inbox, "w1").receive_available()
    assert inbox.rejected == {}


def test_a_function_that_does_not_return_is_named_by_doctor_and_logged_once(
    sqlite_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = sqlite_queue
    monkeypatch.setattr(receiving, "_LONGEST_READ", 0.1)
    go = threading.Event()
    inbox = Reading(lambda: go.wait(900) and AddTasks("jobs", (Addition("late"),)))
    queue.inboxes.append(inbox)
    heard: list[InboxUnreachable | InboxBack] = []
    queue.on(InboxUnreachable, heard.append)
    queue.on(InboxBack, heard.append)

    def named() -> list[str]:
        return [
            finding.what for finding in Views(queue).findings() if finding.code == "inbox" and "can't" in finding.what
        ]

    inbox.send_text("bad", "")
    with working(queue, jobs):
        (text,) = until(named, "the finding")
        assert "its reading function has not returned for" in text
        assert "from message bad" in text
        go.set()
        until(lambda: everything(queue, statuses=["completed"]), "the task of the message")
        until(lambda: not named(), "the end of the finding")
    assert [type(event) for event in heard] == [InboxUnreachable, InboxBack]


def run_until_it_ends_well(store: str, place: str) -> int:
    """Run the program as often as a supervisor would; return how often it died."""
    for deaths in range(12):
        program = [sys.executable, "-m", "tests.inboxes.dying_reader", store, place]
        done = subprocess.run(program, cwd=ROOT, timeout=900, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return deaths
        assert done.returncode == 9, done.stderr
    raise AssertionError("each process died")


@pytest.mark.faults
@pytest.mark.parametrize("store", ["sqlite_url", "postgres_url", "mongo_url"])
def test_a_file_that_ends_each_process_that_reads_it_is_rejected(
    request: pytest.FixtureRequest, store: str, tmp_path: Path
) -> None:
    url = request.getfixturevalue(store)
    for name in ("1", "2", "dies", "3"):
        (tmp_path / f"{name}.txt").write_text(name)
    assert run_until_it_ends_well(url, str(tmp_path)) == 4
    assert (tmp_path / "rejected" / "dies.txt.reason").read_text() == "3 processes ended while they read it\n"
    queue = Queue(url)
    assert sorted(task.payload for task in everything(queue, statuses=["completed"])) == ["1", "2", "3"]
    queue.close()


@pytest.mark.faults
def test_a_message_that_ends_each_process_that_reads_it_is_rejected(sqs: Sqs, sqlite_url: str) -> None:
    sqs.send("1", "dies", "2")
    queue = Queue(sqlite_url)
    died = 0
    while sum(sqs.count()):  # a run that finds all messages hidden ends too
        died += run_until_it_ends_well(sqlite_url, sqs.url)
        if died >= 2:  # the third delivery leaves the message that was being read to the end
            assert sorted(task.payload for task in everything(queue)) in ([], ["1", "2"])
    assert died == 4
    assert sqs.rejected() == {"dies": "3 processes ended while they read it"}
    assert sorted(task.payload for task in everything(queue)) == ["1", "2"]
    queue.close()


def test_messages_whose_reading_did_not_end_come_last_and_alone(sqlite_queue: Queue) -> None:
    note = ReadingNote(sqlite_queue.store, "fake")
    first, second, third = (Message(name, "", deliveries=2) for name in "abc")
    assert note.parts([first, second, third]) == [[first, second, third]]
    begin = note.during(second)
    begin.__enter__()  # and its process died
    assert note.parts([first, second, third]) == [[first, third], [second]]
    with note.during(second):
        pass
    assert note.parts([first, second, third]) == [[first, second, third]]


def test_deaths_are_counted_across_deliveries_and_forgotten_after_the_rejection(sqlite_queue: Queue) -> None:
    note = ReadingNote(sqlite_queue.store, "fake")
    message = Message("m", "", deliveries=2)
    begun = [note.during(message) for _ in range(3)]
    for reading in begun:
        reading.__enter__()  # and its process died
    with pytest.raises(BadMessage, match="3 processes ended"):
        note.during(message).__enter__()
    with note.during(message):  # sent again by hand
        pass


def test_the_first_delivery_of_a_message_reads_and_writes_no_note(
    sqlite_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = ReadingNote(sqlite_queue.store, "fake")
    for name in ("notes", "write_notes"):
        monkeypatch.setattr(type(sqlite_queue.store), name, lambda *args, **terms: pytest.fail("a note"))
    message = Message("m", "")
    assert note.parts([message]) == [[message]]
    with note.during(message):
        pass


def test_a_task_says_which_inbox_it_came_from(queue: Queue) -> None:
    inbox = FakeInbox("jobs")
    queue.publish(jobs)
    inbox.send("m1", {"payload": 1})
    inbox.send("m2", {"payload": 2, "task_id": "given"})
    Receiver(queue, inbox, "w1").receive_available()
    own = queue.add(jobs, 3)
    views = Views(queue)
    inboxes = {task.payload: views.why(task).inbox for task in queue.find().tasks}
    assert inboxes == {1: "fake", 2: "fake", 3: ""}
    assert queue.get(own.task_id).status is Status.WAITING
