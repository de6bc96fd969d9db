"""Webhooks about ended tasks: signed, at least once, from a cursor that survives a crash."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from onerow import BadInput, Permanent, Pipeline, Queue, Worker
from onerow.core.ends import ends_of, may_be_unseen
from onerow.engine.control.event_webhooks import EventWebhook
from onerow.engine.events.events import Event, WebhookFailed
from onerow.engine.worker.roles.webhook_sender import WebhookSender
from onerow.inboxes.signatures import StandardWebhooks

SECRET = "a secret of some length"


class Receiver:
    """An HTTP server on loopback that records signed events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[int] = []  # of the next requests; then 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == 200:
                    name = StandardWebhooks(SECRET).verify(headers, body, datetime.now(UTC))
                    receiver.events.append((name, json.loads(body)))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def types(self) -> list[tuple[str, str]]:
        return [(body["type"], body["data"]["task_id"]) for _, body in self.events]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def queue(sqlite_url: str) -> Iterator[Queue]:
    queue = Queue(sqlite_url)
    queue.publish(letters())
    yield queue
    queue.close()


def letters() -> Pipeline:
    pipeline = Pipeline("letters", title="{to}")

    @pipeline.phase
    def write(payload: dict[str, str]) -> str:
        if payload["to"] == "none":
            raise Permanent("받는 사람이 없다 password=hunter2222")
        return "written"

    return pipeline


def sender(queue: Queue, receiver: Receiver, worker: str = "w1", **options: Any) -> WebhookSender:
    queue.event_webhooks.clear()
    queue.send_events(receiver.url, secret=SECRET, **options)
    webhook: EventWebhook = queue.event_webhooks[0]
    return WebhookSender(queue, webhook, queue.events, worker)


def tick(role: WebhookSender, queue: Queue) -> float:
    return role.tick(queue.store.now())


def later() -> None:
    time.sleep(0.005)  # the store's clock counts milliseconds


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_worker_sends_signed_events_of_ended_tasks(queue: Queue, receiver: Receiver) -> None:
    queue.send_events(receiver.url, secret=SECRET, results=True)
    worker = Worker(queue)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        worker.ready.wait(900)
        until(lambda: queue.store.notes("webhook"))  # events count from here on
        good = queue.add("letters", {"to": "김"}, user_id="u1")
        bad = queue.add("letters", {"to": "none"})
        until(lambda: len(receiver.events) == 2)
    finally:
        worker.stop()
        thread.join()
    by_type = {body["type"]: body["data"] for _, body in receiver.events}
    assert by_type["task.completed"]["task_id"] == good.task_id
    assert by_type["task.completed"]["title"] == "김"
    assert by_type["task.completed"]["user_id"] == "u1"
    assert by_type["task.completed"]["results"] == {"write": "written"}
    assert by_type["task.failed"]["task_id"] == bad.task_id
    assert "받는 사람이 없다" in by_type["task.failed"]["error"]
    assert "hunter2222" not in by_type["task.failed"]["error"]
    assert "payload" not in by_type["task.failed"]


def test_a_crash_before_the_cursor_is_written_repeats_an_event_and_loses_none(queue: Queue, receiver: Receiver) -> None:
    first = sender(queue, receiver)
    tick(first, queue)
    later()
    a = queue.add("letters", {"to": "a"})
    queue.finish(a.task_id)
    first._write = lambda: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):  # dies after the request, before the write
        tick(first, queue)
    b = queue.add("letters", {"to": "b"})
    later()
    queue.finish(b.task_id)
    second = sender(queue, receiver, "w2")
    second._hold(queue.store.now() + timedelta(seconds=60))  # the lease of the dead one has ended
    tick(second, queue)
    assert receiver.types == [("task.completed", a.task_id)] * 2 + [("task.completed", b.task_id)]
    assert receiver.events[0][0] == receiver.events[1][0]  # the same id: the receiver can tell


def test_one_worker_at_a_time_sends(queue: Queue, receiver: Receiver) -> None:
    first = sender(queue, receiver)
    tick(first, queue)
    second = sender(queue, receiver, "w2")
    later()
    queue.finish(queue.add("letters", {"to": "a"}).task_id)
    tick(second, queue)
    assert not receiver.events
    tick(first, queue)
    assert len(receiver.events) == 1
    first.close(queue.store.now())
    later()
    queue.finish(queue.add("letters", {"to": "b"}).task_id)
    tick(second, queue)
    assert [kind for kind, _ in receiver.types][-1] == "task.completed"
    assert len({task_id for _, task_id in receiver.types}) == 2


def test_a_receiver_that_is_away_gets_the_events_later(queue: Queue, receiver: Receiver) -> None:
    role = sender(queue, receiver)
    tick(role, queue)
    heard: list[Event] = []
    queue.events.on(WebhookFailed, heard.append)
    later()
    queue.finish(queue.add("letters", {"to": "a"}).task_id)
    receiver.answers = [500, 503]
    assert tick(role, queue) == 2
    assert tick(role, queue) == 4
    tick(role, queue)
    assert len(receiver.events) == 1
    assert len(heard) == 2


def test_an_event_that_is_always_refused_is_skipped_after_ten_tries(queue: Queue, receiver: Receiver) -> None:
    role = sender(queue, receiver)
    tick(role, queue)
    later()
    queue.finish(queue.add("letters", {"to": "a"}).task_id)
    later()
    b = queue.add("letters", {"to": "b"})
    queue.finish(b.task_id)
    receiver.answers = [422] * 10
    for _ in range(10):
        tick(role, queue)
    assert receiver.types == [("task.completed", b.task_id)]


def test_an_end_that_was_undone_before_it_was_seen_is_sent_when_the_task_ends_again(
    queue: Queue, receiver: Receiver
) -> None:
    role = sender(queue, receiver)
    tick(role, queue)
    later()
    task = queue.add("letters", {"to": "a"})
    queue.fail(task.task_id, "broken")
    later()
    queue.retry(task.task_id)
    tick(role, queue)
    assert not receiver.events
    later()
    queue.finish(task.task_id)
    tick(role, queue)
    assert [kind for kind, _ in receiver.types] == ["task.failed", "task.completed"]
    tick(role, queue)
    assert len(receiver.events) == 2


def test_ends_that_a_reader_saw_are_not_sent_again(queue: Queue) -> None:
    task = queue.add("letters", {"to": "a"})
    queue.fail(task.task_id, "broken")
    queue.retry(task.task_id)
    queue.finish(task.task_id)
    undone, present = ends_of(queue.get(task.task_id))
    assert (undone.status, present.status) == ("failed", "completed")
    assert may_be_unseen(undone, [], margin=60)
    hour = timedelta(hours=1)
    assert undone.reopened_at is not None
    slow = type(undone)(undone.status, undone.phase, undone.at - hour, reopened_at=undone.reopened_at)
    assert not may_be_unseen(slow, [], margin=60)
    assert may_be_unseen(slow, [(slow.at - hour, slow.at + hour / 2)], margin=60)
    assert not may_be_unseen(slow, [(slow.at - 2 * hour, slow.at - hour)], margin=60)


def test_only_the_chosen_events_and_pipelines_are_sent(queue: Queue, receiver: Receiver) -> None:
    role = sender(queue, receiver, events=["failed"], pipelines=["letters"])
    tick(role, queue)
    later()
    queue.finish(queue.add("letters", {"to": "a"}).task_id)
    bad = queue.add("letters", {"to": "b"})
    queue.fail(bad.task_id, "broken")
    tick(role, queue)
    assert receiver.types == [("task.failed", bad.task_id)]


def test_a_redirect_is_not_followed(queue: Queue, receiver: Receiver) -> None:
    role = sender(queue, receiver)
    tick(role, queue)
    later()
    queue.finish(queue.add("letters", {"to": "a"}).task_id)
    receiver.answers = [307]
    tick(role, queue)
    assert not receiver.events


@pytest.mark.parametrize(
    "options, says",
    [
        ({"url": "ftp://x", "secret": SECRET}, "http"),
        ({"url": "http://x", "secret": "short"}, "at least 16"),
        ({"url": "http://x", "secret": SECRET, "events": ["done"]}, "no event"),
    ],
)
def test_wrong_settings_are_refused(queue: Queue, options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        queue.send_events(options.pop("url"), **options)
