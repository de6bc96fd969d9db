"""Benchmarks of the SQS inbox: CPU per message without HTTP, rate and latency over moto."""

import io
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from bench.setting import Figure, Setting
from bench.work import PAYLOAD, noop
from onerow.engine.receiving.receiver import Receiver
from onerow.engine.worker import Worker
from onerow.inboxes.sqs import SqsInbox

_QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/bench"
_KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "eu-central-1"}
_MESSAGES = 5_000
_SERVER = (
    "import logging, sys, time; logging.disable(50); from moto.server import ThreadedMotoServer as S; "
    "s = S(ip_address='127.0.0.1', port=0, verbose=False); s.start(); "
    "print('http://%s:%d' % s.get_host_and_port(), flush=True); sys.stdin.read()"
)


class _Raw(io.BytesIO):
    def stream(self, **terms: Any) -> Iterator[bytes]:
        if content := self.read():
            yield content


class _NoHttp:
    """Answers boto3's requests in this process: ten new messages each time, and every delete succeeds."""

    def __init__(self, pipeline: str, count: int) -> None:
        self._answers = iter([self._receive(pipeline, first) for first in range(0, count, 10)])
        self._deleted = json.dumps({"Successful": [{"Id": str(number)} for number in range(10)]}).encode()

    def send(self, request: Any) -> Any:
        from botocore.awsrequest import AWSResponse

        target = request.headers["X-Amz-Target"]
        target = target.decode() if isinstance(target, bytes) else target
        body = next(self._answers, b"{}") if target.endswith("ReceiveMessage") else self._deleted
        return AWSResponse(request.url, 200, {"Content-Type": "application/x-amz-json-1.0"}, _Raw(body))

    def close(self) -> None:
        pass

    @staticmethod
    def _receive(pipeline: str, first: int) -> bytes:
        sent = str(int(time.time() * 1000))
        body = json.dumps({"pipeline": pipeline, "payload": PAYLOAD})
        messages = [
            {
                "MessageId": f"m{number}",
                "ReceiptHandle": f"r{number}" * 20,
                "Body": body,
                "MD5OfBody": "0" * 32,
                "Attributes": {"SentTimestamp": sent, "ApproximateReceiveCount": "1", "SenderId": "A" * 20},
            }
            for number in range(first, first + 10)
        ]
        return json.dumps({"Messages": messages}).encode()


def sqs_cpu(setting: Setting) -> Iterator[Figure]:
    """CPU per message of receive, store and delete with HTTP stubbed, against a minimal loop with boto3 and SQLite."""
    os.environ |= _KEYS
    thin = _minimal_loop(setting)
    queue, pipeline = setting.queue(), setting.pipeline()
    pipeline.phase(name="noop")(noop)
    queue.publish(pipeline)
    inbox = SqsInbox(_QUEUE, dead_letter=f"{_QUEUE}-dead")
    inbox._client._open()._endpoint.http_session = _NoHttp(pipeline.name, _MESSAGES)
    receiver = Receiver(queue, inbox, "bench")
    began, received = time.process_time(), 0
    while received < _MESSAGES:
        messages = inbox.receive(5.0)
        receiver.store(messages)
        received += len(messages)
    spent = time.process_time() - began
    receiver.close(queue.store.now())
    queue.close()
    yield Figure(
        "sqs cpu", setting.store, spent / _MESSAGES * 1e6, "µs/message", thin / _MESSAGES * 1e6, "minimal loop"
    )


def _minimal_loop(setting: Setting) -> float:
    """Receive ten, insert ten in one transaction, delete ten; return the seconds of CPU."""
    import boto3

    client = boto3.client("sqs")
    client._endpoint.http_session = _NoHttp("thin", _MESSAGES)
    connection = sqlite3.connect(setting.folder / "thin.db", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -32768"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(
        "CREATE TABLE job (id TEXT PRIMARY KEY, queue TEXT NOT NULL, state INT NOT NULL DEFAULT 0, "
        "run_at INT NOT NULL, payload TEXT)"
    )
    connection.execute("CREATE INDEX job_wait ON job (queue, run_at, id) WHERE state = 0")
    began = time.process_time()
    while messages := client.receive_message(
        QueueUrl=_QUEUE, MaxNumberOfMessages=10, WaitTimeSeconds=5, AttributeNames=["All"]
    ).get("Messages"):
        rows = []
        for message in messages:
            body = json.loads(message["Body"])
            sent = int(message["Attributes"]["SentTimestamp"])
            rows.append((message["MessageId"], body["pipeline"], sent, json.dumps(body["payload"])))
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT OR IGNORE INTO job (id, queue, run_at, payload) VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
        client.delete_message_batch(
            QueueUrl=_QUEUE,
            Entries=[{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)],
        )
    spent = time.process_time() - began
    connection.close()
    return spent


def sqs(setting: Setting) -> Iterator[Figure]:
    """Messages per second over moto, and the time from sending a message to the first line of the handler."""
    import boto3

    os.environ |= _KEYS
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        endpoint = server.stdout.readline().decode().strip()
        client = boto3.client("sqs", endpoint_url=endpoint)
        dead = client.create_queue(QueueName="dead")["QueueUrl"]
        url = client.create_queue(QueueName="bench")["QueueUrl"]
        yield from _rate(setting, client, url, dead)
        yield from _latency(setting, client, url, dead)
    finally:
        server.stdin.close()
        server.wait(30)
        server.stdout.close()


def _rate(setting: Setting, client: Any, url: str, dead: str) -> Iterator[Figure]:
    """Few messages, because moto searches all of them at each call; against bare calls to the same server."""
    queue, pipeline = setting.queue(), setting.pipeline()
    pipeline.phase(name="noop")(noop)
    queue.publish(pipeline)
    count = 200

    def fill() -> None:
        body = json.dumps({"pipeline": pipeline.name, "payload": PAYLOAD})
        for _ in range(0, count, 10):
            entries = [{"Id": str(number), "MessageBody": body} for number in range(10)]
            client.send_message_batch(QueueUrl=url, Entries=entries)

    fill()
    began = time.perf_counter()
    while messages := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)]
        client.delete_message_batch(QueueUrl=url, Entries=entries)
    bare = count / (time.perf_counter() - began)
    fill()
    inbox = SqsInbox(url, dead_letter=dead)
    receiver = Receiver(queue, inbox, "bench")
    began = time.perf_counter()
    counts = receiver.receive_available()
    rate = counts.added / (time.perf_counter() - began)
    yield Figure("sqs over moto", setting.store, rate, "messages/s", bare, "bare calls")
    inbox.close()
    queue.close()


def _latency(setting: Setting, client: Any, url: str, dead: str) -> Iterator[Figure]:
    queue, pipeline = setting.queue(), setting.pipeline()
    count, found = 100, list[float]()

    async def timed(job: Any) -> None:
        found.append(time.time() - job["ts"])

    pipeline.phase(name="timed")(timed)
    queue.inboxes.append(SqsInbox(url, dead_letter=dead))
    worker = Worker(queue, [pipeline])
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    worker.ready.wait()
    time.sleep(1)
    for _ in range(count):
        body = json.dumps({"pipeline": pipeline.name, "payload": {"ts": time.time()}})
        client.send_message(QueueUrl=url, MessageBody=body)
        time.sleep(0.03)
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    worker.stop()
    thread.join()
    queue.close()
    found.sort()
    yield Figure("sqs latency p50", setting.store, found[len(found) // 2] * 1000, "ms")
    yield Figure("sqs latency p99", setting.store, found[int(len(found) * 0.99)] * 1000, "ms")
