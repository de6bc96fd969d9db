"""Hooks after the commit, and alerts to a webhook."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from onerow import BadInput, Permanent, Pipeline, Status, TaskCompleted, TaskFailed
from onerow.engine.control.alerts import Alert, Undelivered, Webhook, watch
from onerow.engine.events.events import AlertLost
from onerow.engine.queue.queue import Queue
from onerow.engine.worker.roles.alert_sender import AlertSender
from tests.engine.conftest import ended, until, working


class Receiver:
    """A local webhook that records requests and can refuse them."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.refusals = 0
        self.redirects = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                refuse = receiver.refusals > 0
                receiver.refusals -= refuse
                if not refuse:
                    receiver.bodies.append(body)
                self.send_response(302 if receiver.redirects else 503 if refuse else 204)
                self.send_header("Location", receiver.url)
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook?token=s3cret"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def alerts(self) -> list[dict[str, Any]]:
        return [alert for body in self.bodies for alert in body["alerts"]]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def posts() -> Pipeline:
    pipeline = Pipeline("posts", title="{name}")

    @pipeline.phase
    def tag(job: Any) -> None:
        if job["name"] == "bad":
            raise Permanent("no such post")

    return pipeline


def test_a_hook_is_called_after_the_commit_and_may_raise(queue: Queue) -> None:
    seen: list[Status] = []

    @queue.on(TaskCompleted)
    def clumsy(event: TaskCompleted) -> None:
        raise RuntimeError("a hook's own mistake")

    queue.on(TaskCompleted, lambda event: seen.append(queue.get(event.task.task_id).status))
    pipeline = posts()
    with working(queue, pipeline):
        for name in "ab":
            ended(queue, queue.add(pipeline, {"name": name}).task_id)
        until(lambda: len(seen) == 2)
    assert seen == [Status.COMPLETED, Status.COMPLETED]


def test_a_failure_is_posted_without_its_payload(queue: Queue, receiver: Receiver) -> None:
    pipeline = posts()
    queue.alert(receiver.url)
    with working(queue, pipeline):
        task = ended(queue, queue.add(pipeline, {"name": "bad", "secret": "hush"}).task_id)
        ended(queue, queue.add(pipeline, {"name": "good"}).task_id)
        until(lambda: receiver.alerts)
    (body,) = receiver.bodies
    assert body["text"] == f"posts: 'bad' ({task.task_id}) failed in tag: no such post"
    (alert,) = body["alerts"]
    assert (alert["kind"], alert["task_id"], alert["error_class"]) == ("failed", task.task_id, "permanent")
    assert "hush" not in json.dumps(body)


def test_an_alert_that_a_receiver_refuses_is_sent_again(queue: Queue, receiver: Receiver) -> None:
    receiver.refusals = 2
    sender = AlertSender(queue, watch(receiver.url), queue.events)
    task = queue.add(posts(), {"name": "bad"})
    queue.events.send(TaskFailed(task))
    rests = [sender.tick(queue.store.now()) for _ in range(3)]
    assert rests == [2.0, 4.0, 1.0]
    assert [alert["task_id"] for alert in receiver.alerts] == [task.task_id]


def test_undeliverable_alerts_are_dropped_and_reported_without_the_url(queue: Queue) -> None:
    lost: list[AlertLost] = []
    queue.on(AlertLost, lost.append)
    sender = AlertSender(queue, watch("http://127.0.0.1:9/hook?token=s3cret"), queue.events)
    queue.events.send(TaskFailed(queue.add(posts(), {"name": "bad"})))
    for _ in range(5):
        sender.tick(queue.store.now())
    (event,) = lost
    assert event.count == 1
    assert "s3cret" not in event.error
    assert sender.tick(queue.store.now()) == 1.0


def test_an_alert_about_an_unserved_phase_is_sent_once(queue: Queue, receiver: Receiver) -> None:
    queue.publish(posts())
    queue.add_many("posts", [{"name": "a"}, {"name": "b"}])
    now = queue.store.now()
    terms = {"unserved_for": "5m", "overdue_for": "2m"}
    one, two = (AlertSender(queue, watch(receiver.url, **terms), queue.events) for _ in range(2))  # type: ignore[arg-type]
    one.tick(now)
    assert receiver.alerts == []
    for sender, minutes in ((one, 10), (two, 10), (one, 30)):
        sender._look_at = 0.0
        sender.tick(now + timedelta(minutes=minutes))
    (alert,) = receiver.alerts
    assert (alert["kind"], alert["pipeline"], alert["phase"], alert["waiting"]) == ("unserved", "posts", "tag", 2)
    assert alert["text"].startswith("posts/tag: no worker serves it, and 2 waiting, the first due for 10m")
    one._look_at = 0.0
    one.tick(now + timedelta(hours=2))
    assert len(receiver.alerts) == 2


def test_a_paused_phase_causes_no_alert(queue: Queue, receiver: Receiver) -> None:
    queue.publish(posts())
    queue.add("posts", {"name": "a"})
    queue.pause("posts")
    sender = AlertSender(queue, watch(receiver.url), queue.events)
    sender.tick(queue.store.now() + timedelta(hours=1))
    assert receiver.alerts == []


def test_alerts_can_be_sent_to_a_function(queue: Queue) -> None:
    received: list[str] = []
    queue.alert(lambda alerts: received.extend(alert.text for alert in alerts), unserved_for=None)
    pipeline = posts()
    with working(queue, pipeline):
        ended(queue, queue.add(pipeline, {"name": "bad"}).task_id)
    assert len(received) == 1  # also if the worker stops right afterwards


def test_an_invalid_webhook_url_is_refused() -> None:
    with pytest.raises(BadInput, match="http"):
        Webhook("ftp://example")


def test_an_alert_that_is_redirected_is_not_delivered(receiver: Receiver) -> None:
    receiver.redirects = True
    alert = Alert(kind="failed", text="t", at="2026-01-01T00:00:00Z", pipeline="p", phase="run")
    with pytest.raises(Undelivered, match="did not take it: Found") as caught:
        Webhook(receiver.url)([alert])
    assert "s3cret" not in str(caught.value)


def test_a_program_with_a_queue_imports_http_only_to_send() -> None:
    program = "import sys; from onerow import Pipeline, Queue; sys.exit('http.client' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
