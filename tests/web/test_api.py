"""The HTTP API on a real store: add, read, act, pull, errors."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import httpx
import pytest

from onerow import Pipeline, Queue
from onerow.core.times import spell
from onerow.engine.queue.queue import Queue as AnyQueue
from onerow.engine.worker.worker import is_dismissed
from onerow.web import Dashboard, dashboard
from onerow.web.acts import CONTROL_ACTS, NAMED_ACTS, TASK_ACTS
from tests.conformance.stores import ENTRIES, Entry
from tests.engine.kit import working
from tests.web.kit import TOKENS, Client, access, api, clips, run, until

ADD = "/api/v1/pipelines/clips/tasks"


@pytest.fixture
def client(site: Dashboard) -> Client:
    return api(site)


def add(client: Client, **fields: Any) -> str:
    answer = client.post(ADD, {"payload": {"topic": "조류"}, **fields})
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["task"]["task_id"])


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    return found


# ── adding ──


def test_an_added_task_is_found_again(client: Client, queue: Queue) -> None:
    answer = client.post(ADD, {"payload": {"topic": "조류 🌊"}, "priority": -5, "metadata": {"a": 1}, "delay": "1h"})
    assert answer.status_code == 201
    task_id = answer.json()["task"]["task_id"]
    assert answer.headers["location"].endswith(f"tasks/{task_id}")
    stored = queue.get(task_id)
    assert stored.payload == {"topic": "조류 🌊"}
    assert stored.priority == -5
    assert stored.title == "조류 🌊"
    shown = client.get(f"/api/v1/tasks/{task_id}").json()
    assert shown["task"]["payload"] == {"topic": "조류 🌊"}
    assert shown["why"]["code"] == client.get(f"/api/v1/tasks/{task_id}/why").json()["code"]


@pytest.mark.parametrize("task_id", ["a?b#c", "100%25", "조류 1"])
def test_the_location_of_an_added_task_leads_to_it(client: Client, task_id: str) -> None:
    added = client.post(ADD, {"payload": {}, "task_id": task_id})
    address = urljoin(str(added.request.url), added.headers["location"])
    assert client.get(urlsplit(address).path).json()["task"]["task_id"] == task_id


def test_an_add_is_idempotent_by_unique_key(client: Client) -> None:
    body = {"payload": 1, "unique": "order-7"}
    first, second = client.post(ADD, body), client.post(ADD, body)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["task"]["task_id"] == second.json()["task"]["task_id"]
    assert not second.json()["created"]


def test_an_add_is_idempotent_by_idempotency_key(site: Dashboard, client: Client, queue: Queue) -> None:
    key = {"idempotency-key": "abc-1"}
    first, second = client.post(ADD, {"payload": 1}, headers=key), client.post(ADD, {"payload": 1}, headers=key)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["task"] == second.json()["task"]
    assert "another payload" in problem(client.post(ADD, {"payload": 2}, headers=key), 422)["detail"]
    other = api(site, "operator").post(ADD, {"payload": 1}, headers=key)  # another caller's key is another key
    assert other.json()["task"]["task_id"] != first.json()["task"]["task_id"]
    assert len(queue.find("").tasks) == 2


def test_many_tasks_are_added_all_or_none(client: Client, queue: Queue) -> None:
    answer = client.post(f"{ADD}/batch", {"tasks": [{"payload": n} for n in range(3)]})
    assert answer.status_code == 201
    assert [queue.get(task["task_id"]).payload for task in answer.json()["tasks"]] == [0, 1, 2]
    wrong = client.post(f"{ADD}/batch", {"tasks": [{"payload": 1}, {"payload": 2, "unique_for": "1d"}]})
    assert problem(wrong, 422)["field"] == "unique_for"
    assert len(queue.find("").tasks) == 3


# ── errors ──


def test_errors_are_problems_with_the_fix_of_the_command_line(client: Client) -> None:
    unknown = problem(client.post("/api/v1/pipelines/clip/tasks", {}), 404)
    assert "clips" in unknown["fix"]
    assert "onerow list" in problem(client.get("/api/v1/tasks/nothing"), 404)["fix"]
    mistake = problem(client.get("/api/v1/tasks?query=statu:failed"), 422)
    assert mistake["column"] == 1
    assert problem(client.get("/api/v1/tasks?limit=many"), 422)["title"] == "invalid query"
    assert problem(client.get("/api/v1/tasks?nothing=1"), 422)
    assert problem(client.post(ADD, content=b"{", headers={"content-type": "application/json"}), 400)
    assert problem(client.post(ADD, content=b"{}", headers={"content-type": "text/plain"}), 415)
    assert "pay" in problem(client.post(ADD, {"pay": 1}), 422)["detail"]
    task_id = add(client)
    illegal = problem(client.post(f"/api/v1/tasks/{task_id}/retry"), 409)
    assert illegal["type"] == "urn:onerow:problem:illegal-move"
    assert "onerow show" in illegal["fix"]


# ── acts ──

_ARGUMENTS: dict[str, dict[str, Any]] = {
    "annotate": {"metadata": {"a": 1}},
    "signal": {"name": "reviewed", "payload": {"ok": True}},
    "reschedule": {"run_at": "+10m"},
    "set-priority": {"priority": 7},
    "fail": {"error": "그만"},
    "finish": {"result": 5},
    "replay": {"phase": "script"},
}


@pytest.mark.parametrize("name", list(TASK_ACTS))
def test_every_act_changes_a_task_and_says_who(
    client: Client, queue: Queue, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "onerow.web.audit")
    task_id = add(client)
    if name in ("retry", "replay"):
        queue.fail(task_id, "broken")
    answer = client.post(f"/api/v1/tasks/{task_id}/{name}", _ARGUMENTS.get(name, {}))
    assert answer.status_code == 200, answer.text
    assert answer.json()["task_id"] == task_id
    if name != "annotate":
        assert queue.get(task_id).history[-1].by == "admin-bot"
    else:
        assert queue.get(task_id).metadata == {"a": 1}
    # Arguments are not logged: payloads, results and metadata may be secret.
    (line,) = [record.getMessage() for record in caplog.records if record.name == "onerow.web.audit"]
    assert line == f"admin-bot: onerow {name} {task_id}: 1 done, 0 refused"


def test_acts_on_many_tasks_by_query(client: Client, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "onerow.web.audit")
    ids = [add(client) for _ in range(3)]
    dry = client.post("/api/v1/acts/cancel", {"where": "pipeline:clips", "dry_run": True}).json()
    assert dry["matched"] == 3
    assert dry["command"] == "onerow cancel --where pipeline:clips"
    refused = problem(client.post("/api/v1/acts/cancel", {"where": "pipeline:clips"}), 422)
    assert refused["fix"] == "confirm with expected: 3"
    assert problem(client.post("/api/v1/acts/cancel", {"where": "pipeline:clips", "expected": 2}), 409)
    assert {queue.get(each).status for each in ids} == {"waiting"}
    done = client.post("/api/v1/acts/cancel", {"where": "pipeline:clips", "expected": 3}).json()
    assert (done["done"], done["refused"]) == (3, 0)
    assert {queue.get(each).status for each in ids} == {"cancelled"}
    assert client.get("/api/v1/operations").json()["operations"][0]["by"] == "admin-bot"
    fourth = add(client)
    assert problem(client.post("/api/v1/acts/finish", {"ids": [fourth, "unknown"]}), 404)
    assert queue.get(fourth).status == "waiting"  # an unknown id is found before any task is changed
    finish = {"ids": [fourth], "arguments": {"phase_only": True}, "dry_run": True}
    assert client.post("/api/v1/acts/finish", finish).json()["command"] == f"onerow finish {fourth} --phase-only"
    by_ids = client.post("/api/v1/acts/retry", {"ids": ids}).json()
    assert by_ids["refused"] == 3
    assert len(by_ids["problems"]) == 3
    assert "admin-bot: onerow cancel --where pipeline:clips: 3 done, 0 refused" in caplog.text
    assert problem(client.post("/api/v1/acts/retry", {}), 422)["field"] == "ids"


def test_an_act_with_a_pace_continues_after_the_answer(client: Client, queue: Queue) -> None:
    ids = [add(client) for _ in range(3)]
    answer = client.post("/api/v1/acts/set-priority", {"ids": ids, "pace": "100/s", "arguments": {"priority": 9}})
    assert answer.status_code == 202
    assert answer.json()["started"]
    until(lambda: {queue.get(each).priority for each in ids} == {9})


@pytest.mark.parametrize(
    "act, arguments, pace, field",
    [
        ("retry", {}, "x", "pace"),
        ("reschedule", {"run_at": "soon"}, "1/s", "run_at"),
        ("fail", {"error": "x", "error_class": "bad luck"}, "1/s", "error"),
    ],
)
def test_a_mistake_in_an_act_is_answered_before_it_continues_in_the_background(
    client: Client, act: str, arguments: dict[str, Any], pace: str, field: str
) -> None:
    add(client)
    asked = {"where": "pipeline:clips", "pace": pace, "arguments": arguments}
    assert problem(client.post(f"/api/v1/acts/{act}", asked), 422)["field"] == field
    assert client.get("/api/v1/operations").json()["operations"] == []


def test_phases_and_pipelines_are_paused_and_limited(client: Client, queue: Queue) -> None:
    base = "/api/v1/pipelines/clips"
    paused = client.post(f"{base}/phases/script/pause", {"reason": "배포"})
    assert paused.json()["command"] == "onerow pause clips script --reason '배포'"

    def lane() -> Any:
        return client.get("/api/v1/board").json()["pipelines"][0]["lanes"][0]

    assert lane()["paused"]["by"] == "admin-bot"
    assert client.post(f"{base}/phases/script/resume").json()["changed"]
    assert not client.post(f"{base}/phases/script/resume").json()["changed"]
    assert (
        client.post(f"{base}/phases/script/limit", {"concurrency": 3}).json()["command"]
        == "onerow limit clips script 3"
    )
    assert lane()["limit"] == 3
    client.post(f"{base}/phases/script/limit", {"concurrency": None})
    assert lane()["limit"] is None
    assert client.post(f"{base}/phases/script/limit", {"reset": True}).json()["changed"]
    assert client.post(f"{base}/pause").status_code == 200
    assert queue.claim("clips") is not None
    assert client.post(f"{base}/resume").json()["changed"]
    assert problem(client.post(f"{base}/phases/scrip/pause"), 404)["fix"] == "did you mean 'script'?"
    assert problem(client.post(f"{base}/schedules/daily/pause"), 404)


def test_a_worker_is_drained(client: Client, queue: Queue) -> None:
    with closing(Queue(queue.url)) as other, working(other, clips()) as worker:
        name = worker.name
        until(lambda: any(each["name"] == name for each in client.get("/api/v1/workers").json()["workers"]))
        assert name in problem(client.post(f"/api/v1/workers/{quote(name)}x/drain"), 404)["fix"]
        answer = client.post(f"/api/v1/workers/{quote(name)}/drain")
        assert (answer.status_code, answer.json()) == (202, {"command": f"onerow drain {name}"})
        until(lambda: is_dismissed(worker))


def test_an_operation_on_many_tasks_is_stopped(client: Client, queue: Queue) -> None:
    for _ in range(3):
        add(client)
    body = {"where": "status:waiting", "pace": "1/h", "arguments": {"priority": 9}}
    assert client.post("/api/v1/acts/set-priority", body).status_code == 202
    until(lambda: queue.bulk_operations())
    (record,) = client.get("/api/v1/operations").json()["operations"]
    answer = client.post(f"/api/v1/operations/{record['name']}/stop")
    assert answer.json()["command"] == f"onerow operations --stop {record['name']}"
    until(lambda: client.get("/api/v1/operations").json()["operations"][0].get("stopped_by") == "admin-bot")
    assert problem(client.post("/api/v1/operations/x/stop"), 404)["field"] == "name"


def test_every_act_has_the_name_of_a_command() -> None:
    from onerow.cli.main import COMMANDS

    assert {*TASK_ACTS, *CONTROL_ACTS, *(act.words[1] for act in NAMED_ACTS.values())} <= set(COMMANDS)


def test_ended_tasks_are_purged(client: Client, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "onerow.web.audit")
    task_id = add(client)
    queue.cancel(task_id)
    assert client.post("/api/v1/purge", {"older_than": "0s", "dry_run": True}).json()["count"] == 1
    assert client.post("/api/v1/purge", {"older_than": "0s"}).json() == {"count": 1, "more": False}
    assert client.get(f"/api/v1/tasks/{task_id}").status_code == 404
    assert "admin-bot: onerow purge --older-than 0s: 1 tasks deleted" in caplog.text


# ── reading ──


def test_pages_follow_each_other(client: Client) -> None:
    ids = [add(client) for _ in range(5)]
    first = client.get("/api/v1/tasks?limit=3").json()
    second = client.get("/api/v1/tasks", params={"limit": 3, "after": first["next"]}).json()
    found = [row["task_id"] for row in first["tasks"] + second["tasks"]]
    assert sorted(found) == sorted(ids)
    assert second["next"] is None
    assert sum(line["count"] for line in client.get("/api/v1/counts").json()["tallies"]) == 5


@pytest.mark.parametrize("name", ["overview", "board", "stats", "workers", "schedules", "failures", "pipelines"])
def test_every_figure_is_answered(client: Client, name: str) -> None:
    assert client.get(f"/api/v1/{name}").status_code == 200


def test_a_result_is_waited_for(client: Client, queue: Queue) -> None:
    task_id = add(client)
    pending = client.get(f"/api/v1/tasks/{task_id}/result")
    assert pending.status_code == 202
    assert not pending.json()["ended"]
    finishing = threading.Timer(0.3, lambda: queue.finish(task_id, result={"url": "x"}))
    finishing.start()
    ended = client.get(f"/api/v1/tasks/{task_id}/result?timeout=60s")
    assert ended.status_code == 200
    finishing.join()
    assert ended.json()["result"] == {"url": "x"}
    assert problem(client.get(f"/api/v1/tasks/{task_id}/result?timeout=2h"), 422)["field"] == "timeout"


def test_log_lines_are_read_and_streamed(client: Client, queue: Queue) -> None:
    task_id = add(client)
    lease = client.post("/api/v1/claims", {"pipeline": "clips"}).json()["leases"][0]
    lines = [{"text": f"{n} 줄"} for n in range(3)] + [{"text": "bad", "level": "error"}]
    client.post(f"/api/v1/leases/{task_id}/log", {"token": lease["token"], "lines": lines})
    page = client.get(f"/api/v1/tasks/{task_id}/logs").json()
    assert [line["text"] for line in page["lines"]] == ["0 줄", "1 줄", "2 줄", "bad"]
    assert len(client.get(f"/api/v1/tasks/{task_id}/logs?after={page['lines'][1]['seq']}").json()["lines"]) == 2
    assert len(client.get(f"/api/v1/tasks/{task_id}/logs?level=error").json()["lines"]) == 1
    assert problem(client.get(f"/api/v1/tasks/{task_id}/logs?level=loud"), 422)
    client.post(f"/api/v1/leases/{task_id}/complete", {"token": lease["token"]})
    ending = threading.Timer(0.5, lambda: queue.cancel(task_id))
    ending.start()
    stream = client.get(f"/api/v1/tasks/{task_id}/logs/stream")
    ending.join()
    assert stream.headers["content-type"].startswith("text/event-stream")
    events = [event.split("\n") for event in stream.text.strip().split("\n\n")]
    assert [event[0] for event in events] == ["event: line"] * 4 + ["event: end"]
    assert json.loads(events[0][2].removeprefix("data: "))["text"] == "0 줄"
    last = events[2][1].removeprefix("id: ")
    resumed = client.get(f"/api/v1/tasks/{task_id}/logs/stream", headers={"last-event-id": last}).text
    assert resumed.count("event: line") == 1


# ── pulling, on every store ──


@pytest.fixture(params=[ENTRIES[name] for name in ("sqlite", "postgres", "mongo")], ids=lambda entry: entry.name)
def entry(request: pytest.FixtureRequest) -> Entry:
    found: Entry = request.param
    return found


@pytest.fixture
def store_client(entry: Entry, request: pytest.FixtureRequest) -> Iterator[tuple[Client, AnyQueue]]:
    queue = AnyQueue(entry.open(entry.fresh(request), None))
    queue.publish(clips())
    app = dashboard(queue, access=access())
    yield api(app), queue
    app.close()
    queue.close()


def test_a_task_is_pulled_from_its_first_phase_to_its_last(store_client: tuple[Client, AnyQueue]) -> None:
    client, queue = store_client
    task_id = add(client)
    (lease,) = client.post("/api/v1/claims", {"pipeline": "clips", "phase": "script", "worker": "ts-1"}).json()[
        "leases"
    ]
    assert lease["payload"] == {"topic": "조류"}
    own = {"token": lease["token"]}
    path = f"/api/v1/leases/{task_id}"
    beat = client.post(f"{path}/heartbeat", {**own, "lease_for": "2m", "progress": {"done": 1, "total": 4}}).json()
    assert beat["leased_until"] > lease["leased_until"]
    assert queue.get(task_id).progress == {"done": 1, "total": 4, "note": ""}
    client.post(f"{path}/remember", {**own, "name": "uploaded", "value": 7})
    assert problem(client.post(f"{path}/complete", {"token": lease["token"] + 1}), 409)["type"].endswith("lease-lost")
    failed = client.post(f"{path}/fail", {**own, "error": "조금 뒤에", "error_class": "network"}).json()
    assert failed["status"] == "waiting"
    queue.reschedule(task_id, spell(queue.store.now()))
    (lease,) = client.post("/api/v1/claims", {"pipeline": "clips", "wait": "20s"}).json()["leases"]
    assert lease["attempt"] == 2
    assert lease["steps"] == {"uploaded": 7}
    own = {"token": lease["token"]}
    done = client.post(f"{path}/complete", {**own, "result": {"text": "x"}})
    assert done.json()["phase"] == "review"
    again = client.post(f"{path}/complete", {**own, "result": {"text": "x"}})  # the first answer may have been lost
    assert again.json()["phase"] == "review"
    client.post(f"/api/v1/tasks/{task_id}/finish", {"phase_only": True})  # no worker passes the wait here
    (lease,) = client.post("/api/v1/claims", {"pipeline": "clips", "phase": "video"}).json()["leases"]
    assert lease["results"]["script"] == {"text": "x"}
    assert client.post(f"{path}/complete", {"token": lease["token"], "result": 1}).json()["status"] == "completed"
    assert client.get(f"/api/v1/tasks/{task_id}/result").json()["result"] == 1
    assert any(worker["name"] == "ts-1" for worker in client.get("/api/v1/workers").json()["workers"])
    assert client.get("/api/v1/tasks?query=status:completed").json()["tasks"][0]["task_id"] == task_id
    assert client.get("/api/v1/counts?query=조류").json()["tallies"][0]["count"] == 1


@pytest.mark.parametrize(
    "name, body, status",
    [("snooze", {"delay": "1h"}, "waiting"), ("cancel", {}, "cancelled"), ("skip", {}, "waiting"), ("hand-back", {}, "waiting")],
)  # fmt: skip
def test_a_lease_is_settled_in_other_ways(client: Client, name: str, body: dict[str, Any], status: str) -> None:
    task_id = add(client)
    (lease,) = client.post("/api/v1/claims", {"pipeline": "clips"}).json()["leases"]
    answer = client.post(f"/api/v1/leases/{task_id}/{name}", {"token": lease["token"], **body})
    assert answer.json()["status"] == status


def test_a_name_that_a_database_can_not_hold_is_refused(client: Client) -> None:
    assert problem(client.post("/api/v1/claims", {"pipeline": "clips", "worker": "a\0b"}), 422)["field"] == "worker"
    assert problem(client.post("/api/v1/operations/a%00b/stop"), 422)["field"] == "name"


def test_a_wrong_delay_is_named_as_in_the_request(client: Client) -> None:
    task_id = add(client)
    (lease,) = client.post("/api/v1/claims", {"pipeline": "clips"}).json()["leases"]
    answer = client.post(f"/api/v1/leases/{task_id}/snooze", {"token": lease["token"], "delay": "-1s"})
    assert problem(answer, 422)["field"] == "delay"


def test_a_heartbeat_tells_of_a_cancel_request(client: Client) -> None:
    task_id = add(client)
    (lease,) = client.post("/api/v1/claims", {"pipeline": "clips"}).json()["leases"]
    client.post(f"/api/v1/tasks/{task_id}/cancel")
    beat = client.post(f"/api/v1/leases/{task_id}/heartbeat", {"token": lease["token"]}).json()
    assert beat["cancel_requested"]


def test_a_task_of_a_dead_puller_is_pulled_again(site: Dashboard, queue: Queue) -> None:
    short = Pipeline("short")

    @short.phase(lease="1s")
    def only(payload: Any) -> None: ...

    queue.publish(short)
    client = api(site)
    client.post("/api/v1/pipelines/short/tasks")
    (dead,) = client.post("/api/v1/claims", {"pipeline": "short"}).json()["leases"]
    (lease,) = client.post("/api/v1/claims", {"pipeline": "short", "wait": "30s"}).json()["leases"]
    assert lease["task_id"] == dead["task_id"]
    assert lease["token"] > dead["token"]
    late = client.post(f"/api/v1/leases/{dead['task_id']}/complete", {"token": dead["token"]})
    assert late.status_code == 409


def test_a_client_that_is_gone_gets_no_task(site: Dashboard, queue: Queue) -> None:
    task = queue.add("clips", {"topic": "x"})
    body = json.dumps({"pipeline": "clips", "wait": "30s"}).encode()
    received = iter([{"type": "http.request", "body": body}])

    async def receive() -> Any:
        return next(received, {"type": "http.disconnect"})

    async def send(message: Any) -> None: ...

    headers = {"host": "localhost", "content-type": "application/json", "authorization": f"Bearer {TOKENS['operator']}"}
    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/claims", "query_string": b"", "client": ("127.0.0.1", 5000),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    run(site(scope, receive, send))
    assert queue.get(task.task_id).status == "waiting"


def test_metrics_have_the_number_of_workers_that_the_work_needs(client: Client) -> None:
    text = client.get("/metrics").text
    assert "onerow_store_up 1.0" in text
    assert "\nonerow_desired_workers 0\n" in text


def test_the_scale_signal_is_answered(client: Client) -> None:
    add(client)
    found = client.get("/scale").json()
    assert found["desired_workers"] == 1
    assert found["why"]
    assert client.get("/scale/clips").json()["phases"]["clips.script"]["ready"] == 1
    assert problem(client.get("/scale/clip"), 404)["fix"] == "did you mean 'clips'?"
