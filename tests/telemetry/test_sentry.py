"""Exceptions of handlers reach Sentry; its transport is stubbed at the HTTP line."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import sentry_sdk

from onerow import Permanent, Pipeline, Queue, Snooze, Worker
from onerow.telemetry.sentry import report_to_sentry


@pytest.fixture
def envelopes() -> Iterator[list[dict[str, Any]]]:
    """Events that a server on loopback received from the SDK."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            for line in body.splitlines():
                found = json.loads(line)
                if "exception" in found:
                    received.append(found)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    sentry_sdk.init(
        dsn=f"http://key@127.0.0.1:{server.server_address[1]}/1", default_integrations=False, auto_enabling_integrations=False
    )  # fmt: skip
    yield received
    sentry_sdk.flush(30)
    sentry_sdk.get_client().close(timeout=30)
    sentry_sdk.init(default_integrations=False, auto_enabling_integrations=False)  # off again
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_failed_attempt_is_reported_with_its_task(sqlite_url: str, envelopes: list[dict[str, Any]]) -> None:
    letters = Pipeline("letters")

    @letters.phase
    def write(payload: dict[str, Any]) -> None:
        if payload["later"]:
            raise Snooze("1h")
        raise Permanent("주소가 없다")

    queue = Queue(sqlite_url)
    queue.serve(letters)
    queue.middleware(report_to_sentry)
    later = queue.add("letters", {"later": True})
    task = queue.add("letters", {"later": False, "iban": "DE00 1234"}, user_id="u1")
    worker = Worker(queue)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert queue.wait(task.task_id, timeout="60s").status == "failed"
        worker.stop()
        thread.join()
        assert queue.get(later.task_id).status == "waiting"
    finally:
        worker.stop()
        thread.join()
        queue.close()
    sentry_sdk.flush(30)
    (event,) = envelopes
    assert event["exception"]["values"][-1]["type"] == "Permanent"
    assert event["exception"]["values"][-1]["value"] == "주소가 없다"
    assert event["tags"] == {"onerow.pipeline": "letters", "onerow.phase": "write", "onerow.task_id": task.task_id}
    assert event["user"] == {"id": "u1"}
    assert event["transaction"] == "letters.write"
