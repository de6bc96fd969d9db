"""Webhooks: a signed request is answered with 200 once its row is stored; any other request stores nothing."""

import asyncio
import base64
import hmac
import json
import threading
import time
from hashlib import sha256
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onerow import Pipeline, Queue, Status
from onerow.asgi import webhook
from onerow.core.addition import Addition
from onerow.core.errors import BadInput, StoreUnavailable
from onerow.core.messages import AddTasks, Message, Request, SendSignal
from onerow.engine.receiving import receiver as receiving
from onerow.engine.views import Views
from onerow.inboxes import webhook as webhooks
from onerow.inboxes.signatures import GitHub, Scheme, StandardWebhooks, Stripe
from onerow.inboxes.webhook import WebhookInbox
from onerow.ports import Inbox
from tests.engine.kit import until, work, working

SECRET = "a secret of the sender"
jobs = Pipeline("jobs")


@jobs.phase
async def run(job: Any) -> Any:
    return job


@pytest.fixture
def queue() -> Queue:
    queue = Queue("memory://")
    queue.publish(jobs)
    return queue


def post(
    queue: Queue, headers: dict[str, str], body: bytes, *, scheme: Scheme, method: str = "POST", **options: Any
) -> httpx.Response:
    app = webhook(queue, WebhookInbox("test", scheme, **({"pipeline": "jobs"} | options)))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.request(method, "/", content=body, headers=headers)

    return asyncio.run(ask())


def hexed(signed: bytes, secret: str = SECRET) -> str:
    return hmac.digest(secret.encode(), signed, "sha256").hex()


def github(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={hexed(body, secret)}", "X-GitHub-Delivery": "d1"}


def stripe(body: bytes, at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at))
    return {"Stripe-Signature": f"v0=old,t={stamp},v1={hexed(f'{stamp}.'.encode() + body, secret)}"}


def standard(
    body: bytes, delivery: str = "msg_1", at: float | None = None, secret: bytes = SECRET.encode()
) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at))
    signed = hmac.digest(secret, f"{delivery}.{stamp}.".encode() + body, "sha256")
    return {
        "webhook-id": delivery,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()} v1a,other",
    }


BODY = b'{"payload": {"id": "evt_1", "n": 1}}'
SIGNED = [
    pytest.param(GitHub(SECRET), github, id="github"),
    pytest.param(Stripe(SECRET), stripe, id="stripe"),
    pytest.param(StandardWebhooks(SECRET), standard, id="standard webhooks"),
]


def test_it_has_the_port_of_an_inbox() -> None:
    assert isinstance(WebhookInbox("a", GitHub(SECRET)), Inbox)


@pytest.mark.parametrize("scheme, sign", SIGNED)
def test_a_signed_request_becomes_a_task(queue: Queue, scheme: Scheme, sign: Any) -> None:
    answer = post(queue, sign(BODY), BODY, scheme=scheme)
    assert answer.status_code == 200
    (task,) = queue.find().tasks
    assert task.payload == {"id": "evt_1", "n": 1}


@pytest.mark.parametrize("scheme, sign", SIGNED)
def test_a_repeated_request_adds_nothing(queue: Queue, scheme: Scheme, sign: Any) -> None:
    headers = sign(BODY)
    assert [post(queue, headers, BODY, scheme=scheme).status_code for _ in range(3)] == [200] * 3
    work(queue, jobs)
    assert post(queue, headers | {"X-GitHub-Delivery": "another"}, BODY, scheme=scheme).status_code == 200
    (task,) = queue.find().tasks
    assert (task.status, task.generation) == (Status.COMPLETED, 0)


@pytest.mark.parametrize("scheme, sign", SIGNED)
def test_a_forged_request_stores_nothing(queue: Queue, scheme: Scheme, sign: Any) -> None:
    good = sign(BODY)
    forged = [
        ({}, BODY),
        (good, BODY.replace(b"1", b"2")),
        (sign(b"{}"), BODY),
        (dict.fromkeys(good, ""), BODY),
        (dict.fromkeys(good, "sha256=,v1,="), BODY),
        ({name: value[:-1] for name, value in good.items()}, BODY),
    ]
    for headers, body in forged:
        answer = post(queue, headers, body, scheme=scheme)
        assert answer.status_code == 401, headers
        assert SECRET not in answer.text
    assert queue.find().tasks == []


def test_refused_requests_are_counted_and_logged_in_one_line(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    app = webhook(queue, WebhookInbox("test", GitHub(SECRET), pipeline="jobs"))
    queue.log_lines.start("test")

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            for _ in range(3):
                await client.post("/", content=BODY, headers=github(BODY, "another secret"))

    asyncio.run(ask())
    app.write_counts()
    queue.log_lines.stop("test")
    assert Views(queue).inboxes()["webhook:test"].refused == 3
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "inbox webhook:test: 3 requests refused: signature missing, wrong or too old"


def test_a_request_signed_with_another_secret_is_refused(queue: Queue) -> None:
    assert post(queue, github(BODY, "another secret"), BODY, scheme=GitHub(SECRET)).status_code == 401


@pytest.mark.parametrize("late", [-3600, 3600])
def test_a_late_or_early_request_is_refused(queue: Queue, late: float) -> None:
    at = time.time() + late
    assert post(queue, stripe(BODY, at), BODY, scheme=Stripe(SECRET)).status_code == 401
    assert post(queue, standard(BODY, at=at), BODY, scheme=StandardWebhooks(SECRET)).status_code == 401
    assert post(queue, stripe(BODY, at), BODY, scheme=Stripe(SECRET, tolerance="2h")).status_code == 200


def test_two_secrets_hold_while_one_is_replaced(queue: Queue) -> None:
    scheme = GitHub("the new secret", SECRET)
    assert post(queue, github(BODY), BODY, scheme=scheme).status_code == 200
    assert post(queue, github(BODY, "the new secret"), BODY, scheme=scheme).status_code == 200


def test_a_base64_secret_is_decoded(queue: Queue) -> None:
    raw = b"\x00\x01binary secret"
    scheme = StandardWebhooks(f"whsec_{base64.b64encode(raw).decode()}")
    assert post(queue, standard(BODY, secret=raw), BODY, scheme=scheme).status_code == 200


def test_bad_secrets_are_errors_when_the_inbox_is_made() -> None:
    with pytest.raises(BadInput, match="needs a secret"):
        GitHub()
    with pytest.raises(BadInput, match="at least 8"):
        Stripe("short")
    with pytest.raises(BadInput, match="base64"):
        StandardWebhooks("whsec_?????")


def test_a_message_that_cannot_be_read_is_answered_with_the_reason(queue: Queue) -> None:
    for body in (b"{", b"[]", b'{"pipeline": "nowhere"}', b'{"paylod": 1}', b"\xff"):
        answer = post(queue, github(body), body, scheme=GitHub(SECRET))
        assert answer.status_code == 422
        assert answer.json()["detail"]
    assert queue.find().tasks == []


@pytest.mark.parametrize(
    "body", [b'{"id": "\xff", "payload": 1}', b'{"payload": "\xff"}', b"\xff\xfe", b'{"\xc3": 1}'], ids=repr
)
@pytest.mark.parametrize("sign, scheme", [(stripe, Stripe(SECRET)), (github, GitHub(SECRET))])
def test_a_signed_body_that_is_not_utf_8_is_answered_with_the_reason(
    queue: Queue, body: bytes, sign: Any, scheme: Scheme
) -> None:
    answer = post(queue, sign(body), body, scheme=scheme)
    assert (answer.status_code, answer.json()["detail"][:26]) == (422, "the body is not UTF-8: inv")
    assert queue.find().tasks == []


@pytest.mark.parametrize("own_id", ["a\0b", "x" * 500_000, "", "\n"], ids=["NUL", "long", "empty", "line feed"])
def test_an_id_that_can_t_name_a_message_is_replaced_by_the_hash_of_the_body(queue: Queue, own_id: str) -> None:
    body = json.dumps({"id": own_id, "n": 1}).encode()

    def read(message: Message) -> Request:
        return AddTasks("jobs", (Addition({"message": message.message_id}),))

    for _ in range(2):
        assert post(queue, stripe(body), body, scheme=Stripe(SECRET), read=read).status_code == 200
    (task,) = queue.find().tasks
    assert task.payload == {"message": f"webhook:test {sha256(body).hexdigest()}"}


def test_a_reading_function_that_hangs_is_answered_with_503_and_named_by_doctor(
    sqlite_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = sqlite_queue
    go, reading = threading.Event(), threading.Event()
    monkeypatch.setattr(receiving, "_LONGEST_READ", 0.1)
    monkeypatch.setattr(webhooks, "_ANSWER_WITHIN", 0.5)

    def read(message: Message) -> Request:
        reading.set()
        go.wait(900)
        return AddTasks("jobs", (Addition(1),))

    inbox = WebhookInbox("test", GitHub(SECRET), pipeline=jobs, read=read)
    app = webhook(queue, inbox)
    queue.inboxes.append(inbox)

    async def ask() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return (await client.post("/", content=BODY, headers=github(BODY))).status_code

    def named() -> list[str]:
        return [each.what for each in Views(queue).findings() if each.code == "inbox" and each.level == "bad"]

    with working(queue):
        assert asyncio.run(ask()) == 503
        assert reading.is_set()
        (what,) = until(named, "the finding")
        assert "its reading function has not returned" in what
        assert asyncio.run(ask()) == 503  # at once, without a thread
        go.set()
        until(lambda: queue.find().tasks, "the task of the request that hung")
        assert asyncio.run(ask()) == 200
        assert len(queue.find().tasks) == 1


def test_a_server_whose_reading_function_hangs_can_be_stopped(
    sqlite_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, reading = threading.Event(), threading.Event()
    monkeypatch.setattr(webhooks, "_ANSWER_WITHIN", 0.5)
    monkeypatch.setattr(webhooks, "_COUNT_WITHIN", 0.5)

    def read(message: Message) -> Request:
        reading.set()
        go.wait(900)
        return AddTasks("jobs", (Addition(1),))

    app = webhook(sqlite_queue, WebhookInbox("test", GitHub(SECRET), pipeline=jobs, read=read))
    sent: list[str] = []

    async def events() -> dict[str, str]:
        return {"type": "lifespan.shutdown"}

    async def note(event: Any) -> None:
        sent.append(event["type"])

    async def serve() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            status = (await client.post("/", content=BODY, headers=github(BODY))).status_code
        await app({"type": "lifespan"}, events, note)
        return status

    try:
        assert asyncio.run(serve()) == 503  # returns only if no thread of the event loop hangs
    finally:
        go.set()
    assert reading.is_set()
    assert sent == ["lifespan.shutdown.complete"]
    until(lambda: sqlite_queue.find().tasks, "the task of the request that hung")


def test_only_small_posts_are_accepted(queue: Queue) -> None:
    large = b'{"payload": "' + b"x" * 2000 + b'"}'
    assert post(queue, github(large), large, scheme=GitHub(SECRET), max_size="1KB").status_code == 413
    assert post(queue, github(BODY), BODY, scheme=GitHub(SECRET), method="GET").status_code == 405


def test_a_store_that_is_unavailable_is_answered_with_503(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*args: object, **terms: object) -> None:
        raise StoreUnavailable("down")

    with monkeypatch.context() as patch:
        patch.setattr(type(queue.store), "insert", unavailable)
        answer = post(queue, github(BODY), BODY, scheme=GitHub(SECRET))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    assert queue.find().tasks == []
    assert post(queue, github(BODY), BODY, scheme=GitHub(SECRET)).status_code == 200


def test_a_request_can_send_a_signal(queue: Queue) -> None:
    orders = Pipeline("orders")
    orders.wait_for("paid", signal="paid")
    queue.publish(orders)
    task = queue.add(orders, {"order": 7}, task_id="order-7")

    def read(message: Message) -> Request:
        event = json.loads(message.body)
        if event["type"] == "paid":
            return SendSignal(f"order-{event['order']}", "paid", event)
        return AddTasks("jobs", (Addition(event),))

    body = b'{"id": "evt_9", "type": "paid", "order": 7}'
    for _ in range(2):
        assert post(queue, stripe(body), body, scheme=Stripe(SECRET), read=read).status_code == 200
    work(queue, orders)
    done = queue.get(task.task_id)
    assert done.status is Status.COMPLETED
    assert done.results["paid"]["id"] == "evt_9"


def test_a_signal_for_a_missing_task_is_to_be_sent_again(queue: Queue) -> None:
    body = b'{"task_id": "later", "signal": "paid"}'
    assert post(queue, github(body), body, scheme=GitHub(SECRET)).status_code == 503


def test_a_worker_that_receives_from_a_webhook_waits_until_it_is_interrupted() -> None:
    inbox = WebhookInbox("test", GitHub(SECRET))
    ended = threading.Event()

    def receive() -> None:
        inbox.receive(3600)
        ended.set()

    threading.Thread(target=receive, daemon=True).start()
    assert not ended.wait(0.1)
    inbox.interrupt()
    assert ended.wait(900)


def test_requests_that_arrive_while_one_is_stored_are_stored_together(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = webhook(queue, WebhookInbox("test", GitHub(SECRET), pipeline="jobs"))
    sizes: list[int] = []
    first, others = threading.Event(), threading.Event()
    insert = type(queue.store).insert

    def slow(store: Any, tasks: Any, **terms: Any) -> Any:
        sizes.append(len(tasks))
        if len(sizes) == 1:
            first.set()
            assert others.wait(900)
        return insert(store, tasks, **terms)

    monkeypatch.setattr(type(queue.store), "insert", slow)

    async def ask() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:

            def send(number: int) -> "asyncio.Task[httpx.Response]":
                body = json.dumps({"payload": number}).encode()
                return asyncio.create_task(client.post("/", content=body, headers=github(body)))

            waiting = [send(0)]
            await asyncio.to_thread(first.wait)
            waiting += [send(number) for number in (1, 2, 3)]
            gathered: Any = app._store
            while len(gathered.__self__._gathered) < 3:
                await asyncio.sleep(0.01)
            others.set()
            return [answer.status_code for answer in await asyncio.gather(*waiting)]

    assert asyncio.run(ask()) == [200] * 4
    assert sizes == [1, 3]
    assert sorted(task.payload for task in queue.find().tasks) == [0, 1, 2, 3]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=40),
    value=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60),
    scheme=st.sampled_from([GitHub(SECRET), Stripe(SECRET), StandardWebhooks(SECRET)]),
)
def test_random_requests_are_refused(body: bytes, value: str, scheme: Scheme) -> None:
    queue = Queue("memory://")
    names = ("x-hub-signature-256", "stripe-signature", "webhook-id", "webhook-timestamp", "webhook-signature")
    assert post(queue, dict.fromkeys(names, value), body, scheme=scheme).status_code == 401


def test_the_application_speaks_the_lifespan_protocol(queue: Queue) -> None:
    app = webhook(queue, WebhookInbox("test", GitHub(SECRET)))
    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(events)

    async def send(event: Any) -> None:
        sent.append(event["type"])

    asyncio.run(app({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
