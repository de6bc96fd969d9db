"""A proxy in front of moto's SQS that loses, doubles and reorders messages and answers, or refuses calls.

It understands SQS's JSON protocol. It numbers FIFO messages in the order of their delivery, because moto's sequence
numbers are random.
"""

import json
import random
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Change = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]] | None]


class SqsShim:
    """faults: the share of calls and messages that go wrong. change: answers a call itself, or returns None."""

    def __init__(self, endpoint: str, *, faults: float = 0.0, seed: int = 0) -> None:
        self.endpoint = endpoint
        self.faults = faults
        self.change: Change = lambda operation, terms: None
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.down = False
        self._random = random.Random(seed)
        self._sequence: dict[str, int] = {}
        self._old: list[dict[str, Any]] = []  # messages of earlier answers, to be delivered once more
        self._lock = threading.Lock()
        shim = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = shim.handle(self.path, dict(self.headers.items()), body)
                if answer is None:
                    self.close_connection = True
                    return
                status, content = answer
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def made(self, operation: str) -> list[dict[str, Any]]:
        """Return the arguments of the calls of an operation so far."""
        return [terms for name, terms in list(self.calls) if name == operation]

    def handle(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes] | None:
        """Answer a call; None: the connection breaks without an answer."""
        operation = headers.get("X-Amz-Target", "").rpartition(".")[2]
        terms = json.loads(body or b"{}")
        self.calls.append((operation, terms))
        if self.down:
            return None
        changed = self.change(operation, terms)
        if changed is not None:
            return changed[0], json.dumps(changed[1]).encode()
        if operation == "DeleteMessageBatch" and self._happens():
            accepted = [{"Id": entry["Id"]} for entry in terms["Entries"]]
            return 200, json.dumps({"Successful": accepted}).encode()  # lost after its acceptance
        status, content = self._forward(path, headers, body)
        if operation == "ReceiveMessage" and status == 200:
            content = json.dumps(self._disturb(json.loads(content))).encode()
        if self._happens():
            return None  # the call was made, and its answer is lost
        return status, content

    def _forward(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        kept = {name: value for name, value in headers.items() if name.lower() not in ("host", "content-length")}
        request = urllib.request.Request(f"{self.endpoint}{path}", body, kept, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=900) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def _disturb(self, answer: dict[str, Any]) -> dict[str, Any]:
        for message in answer.get("Messages", []):
            facts = message.get("Attributes", {})
            if "SequenceNumber" in facts:
                place = self._sequence.setdefault(message["MessageId"], len(self._sequence))
                facts["SequenceNumber"] = str(18850000000000000000 + place)
        if not self.faults:
            return answer
        with self._lock:
            found = answer.get("Messages", [])
            kept = [message for message in found for _ in range(self._copies())]
            kept += [message for message in self._old if self._happens()]
            self._old = (self._old + found)[-20:]
            self._random.shuffle(kept)
        return answer | {"Messages": kept[:10]}

    def _copies(self) -> int:
        chance = self._random.random()
        return 0 if chance < self.faults else 2 if chance < 2 * self.faults else 1

    def _happens(self) -> bool:
        return self.faults > 0 and self._random.random() < self.faults


def throttled(operation: str) -> Change:
    """Refuse an operation as SQS does when there are too many calls."""
    answer = {"__type": "com.amazonaws.sqs#RequestThrottled", "message": "Rate exceeded"}
    return lambda name, terms: (400, answer) if name == operation else None
