"""Every page, on every store, without a browser: content, escaping, empty states, acts, prefixes, exports."""

import csv
import html
import io
import json
import re
import shlex
import threading
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote_plus, urlencode

import msgspec
import pytest
from msgspec.structs import replace

from onerow import Labels, Permanent, Pipeline, Queue, Retry, Status, Tab, Worker
from onerow.core.errors import StoreUnavailable
from onerow.engine.control.schedules import PROGRESS
from onerow.engine.queue.bulk import Selection
from onerow.engine.views import Views, counts, views
from onerow.engine.worker.worker import is_dismissed
from onerow.ports import Store, StoreCounts
from onerow.web import Access, Dashboard, dashboard
from onerow.web.acts import TASK_ACTS
from onerow.web.pages import screens, tasks
from onerow.web.security.roles import Role
from tests.engine.kit import until, working
from tests.samples import a_task
from tests.web.pages.kit import BAD, PAGES, TABS, Browser, clips, fill, mails


@dataclass
class Letter:
    text: str
    pages: Annotated[int, msgspec.Meta(ge=1)]
    sent: bool = True


def all_pages(ids: dict[str, str]) -> list[str]:
    tasks = [f"task?{urlencode({'id': task_id})}" for task_id in ids.values()]
    tabs = [
        f"task?{urlencode({'id': ids[name], 'tab': tab})}" for tab in TABS for name in ("failed", "completed", "parked")
    ]
    acts = [f"act?{urlencode({'name': name, 'id': ids['failed']})}" for name in ("retry", "cancel", "replay", "finish")]
    return [
        *PAGES,
        *tasks,
        *tabs,
        *acts,
        "act?name=retry&q=status:failed",
        "act?name=limit&pipeline=clips&phase=script",
    ]


@pytest.mark.parametrize("url", ["sqlite_url", "postgres_url", "mongo_url"])
def test_every_page_shows_its_data_on_every_store(url: str, request: pytest.FixtureRequest) -> None:
    queue = Queue(request.getfixturevalue(url))
    try:
        ids = fill(queue)
        app = dashboard(queue)
        browser = Browser(app)
        for page in all_pages(ids):
            answer = browser.get(page)
            assert answer.status_code == 200, (page, answer.text[-2000:])
            assert "<!doctype html>" in answer.text
            assert " style=" not in answer.text, page  # the content security policy would block it
            assert not re.search(r"\son\w+=", answer.text), page
            assert "hunter2" not in answer.text, page
        app.close()
    finally:
        queue.close()


def test_no_page_counts_many_tasks_while_its_reader_waits(
    queue: Queue, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted_by: list[str] = []
    count_store = counts.count_store

    def count(store: Store, user_id: str | None) -> StoreCounts:
        counted_by.append(threading.current_thread().name)
        return count_store(store, user_id)

    monkeypatch.setattr(counts, "_MANY", 2)
    monkeypatch.setattr(counts, "count_store", count)
    monkeypatch.setattr(views, "count_store", count)
    with closing(dashboard(queue)) as app:
        browser = Browser(app)
        first = browser.get("board")
        figures = ["api/v1/overview", "api/v1/board", "metrics"]
        for page in [*all_pages(ids), *figures]:
            assert browser.get(page).status_code == 200, page
        assert browser.get("board").text.count("clips") == first.text.count("clips") > 0
    assert set(counted_by) == {"onerow-count_0"}


def test_texts_of_people_and_handlers_are_escaped_on_every_page(queue: Queue) -> None:
    ids = fill(queue, BAD)
    app = dashboard(queue)
    browser = Browser(app)
    for page in all_pages(ids):
        text = browser.get(page).text
        assert "<img src=x" not in text, page
        assert "</script>" not in re.sub(r"<script src=\"[\w./?]+\" defer></script>", "", text), page
    app.close()


def test_pages_of_an_empty_store_say_what_to_type(browser: Browser) -> None:
    for page, command in {
        "": "onerow worker APP", "board": "onerow worker APP", "tasks": "onerow add PIPELINE", "workers": "onerow worker APP",
        "phases": "onerow publish APP", "operations": "onerow retry --where", "failures": "onerow failures",
        "schedules": "cron(", "new": "onerow worker APP",
    }.items():  # fmt: skip
        answer = browser.get(page)
        assert answer.status_code == 200
        assert command in answer.text, page


def test_links_are_relative_so_that_pages_work_under_any_prefix(queue: Queue, ids: dict[str, str]) -> None:
    app = dashboard(queue)
    browser = Browser(app, "/tools/queue")
    for page in all_pages(ids):
        answer = browser.get(page)
        assert answer.status_code == 200, page
        for address in re.findall(r'(?:href|src|action|hx-get|hx-post)="([^"]*)"', answer.text):
            assert not address.startswith("/"), (page, address)
            assert not address.startswith("http") or "example.test" in address, (page, address)
    app.close()


def test_an_empty_result_names_the_term_that_empties_it(browser: Browser, ids: dict[str, str]) -> None:
    text = browser.get("tasks?q=status:failed+phase:nowhere").text
    assert "<b>phase:nowhere</b>" in text
    assert "<b>status:failed</b>" not in text


def test_a_mistake_in_a_query_is_shown_with_its_fix(browser: Browser) -> None:
    text = browser.get("tasks?q=stauts:failed").text
    assert "no key stauts:" in text
    assert "did you mean" in text


def test_an_act_shows_the_number_and_the_command_and_runs_with_the_name_of_the_caller(
    browser: Browser, queue: Queue, ids: dict[str, str]
) -> None:
    shown = browser.get(f"act?name=retry&id={ids['failed']}").text
    assert "1 task" in shown
    assert f"onerow retry {ids['failed']}" in shown
    answer = browser.post("act", {"name": "retry", "id": ids["failed"], "a.note": "again"})
    assert answer.status_code == 303
    task = queue.get(ids["failed"])
    assert task.status is Status.WAITING
    assert (task.history[-1].what, task.history[-1].note) == ("retry", "again")
    assert task.history[-1].by


@pytest.mark.parametrize(
    "fields, command",
    [
        ("name=set-priority&a.priority=0", "onerow set-priority {id} --priority 0"),
        ("name=finish&a.result=0", "onerow finish {id} --result 0"),
        ("name=finish&a.result=%22done%22", "onerow finish {id} --result '\"done\"'"),
        ("name=signal&a.name=go&a.payload=false", "onerow signal {id} go --payload false"),
        ("name=retry&pace=20/min", "onerow retry {id} --pace 20/min"),
    ],
)
def test_the_command_of_an_act_does_what_is_typed(
    browser: Browser, ids: dict[str, str], fields: str, command: str
) -> None:
    page = html.unescape(browser.get(f"act?{fields}&id={ids['waiting']}").text)
    assert f">{command.format(id=ids['waiting'])}<" in page


def test_the_command_of_an_act_names_every_marked_task(browser: Browser, queue: Queue, ids: dict[str, str]) -> None:
    marked = [task.task_id for task in queue.add_many("mails", [{"to": f"p{number}"} for number in range(5)])]
    query = urlencode([("id", each) for each in marked])
    assert f"onerow cancel {' '.join(marked)}<" in browser.get(f"act?name=cancel&{query}").text
    lines = "\n".join(f"onerow signal {each} go" for each in marked)
    assert f">{lines}<" in browser.get(f"act?name=signal&a.name=go&{query}").text


def test_an_act_that_the_task_does_not_allow_shows_why(browser: Browser, ids: dict[str, str]) -> None:
    answer = browser.post("act", {"name": "retry", "id": ids["completed"]})
    assert answer.status_code == 422
    assert "completed" in answer.text


def test_an_act_on_a_query_runs_in_the_background_and_is_listed(
    browser: Browser, queue: Queue, ids: dict[str, str]
) -> None:
    for number in range(5):
        queue.add("mails", {"to": f"p{number}"})
    answer = browser.post("act", {"name": "cancel", "q": "pipeline:mails status:waiting", "a.note": "not needed"})
    assert answer.headers["location"] == "./operations"
    until(lambda: not queue.find("pipeline:mails status:waiting").tasks, "the cancelled tasks")
    until(lambda: '<td class="strong">cancel</td>' in browser.get("operations").text, "the record")


def test_marked_tasks_are_changed_at_once(browser: Browser, queue: Queue, ids: dict[str, str]) -> None:
    first, second = (task.task_id for task in queue.add_many("mails", [{"to": "kim"}, {"to": "lee"}]))
    fields = f"name=cancel&id={first}&id={second}&id={ids['completed']}"
    assert "onerow cancel" in browser.get(f"act?{fields}").text
    token = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.get(f"act?{fields}").text)
    assert token is not None
    answer = browser(
        "POST", "act", content=f"csrf={token[1]}&{fields}",
        headers={"content-type": "application/x-www-form-urlencoded", "hx-request": "true"},
    )  # fmt: skip
    assert "cancel: 2 done, 1 refused" in answer.text
    assert {queue.get(each).status for each in (first, second)} == {"cancelled"}


def test_an_operation_is_stopped_from_its_page(browser: Browser, queue: Queue, ids: dict[str, str]) -> None:
    queue.add_many("mails", [{"to": "kim"}, {"to": "lee"}])
    browser.post("act", {"name": "set-priority", "q": "pipeline:mails", "a.priority": "3", "pace": "1/h"})
    until(lambda: not queue.bulk_operations()[0].ended_at, "the operation")
    page = browser.get("operations").text
    name = queue.bulk_operations()[0].name
    assert f"act?name=stop&amp;{urlencode({'thing': name}).replace('&', '&amp;')}" in page
    assert f"onerow operations --stop {name}" in browser.get(f"act?{urlencode({'name': 'stop', 'thing': name})}").text
    answer = browser.post("act", {"name": "stop", "thing": name})
    assert answer.headers["location"] == "./operations"
    until(lambda: "stopped by" in browser.get("operations").text, "the end of the operation")


def test_a_worker_is_drained_from_its_page(
    browser: Browser, queue: Queue, ids: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        closing(Queue(queue.url)) as other,
        working(other, mails()) as worker,
        caplog.at_level("INFO", "onerow.web.audit"),
    ):
        thing = {"thing": worker.name}
        until(lambda: f"act?name=drain&amp;{urlencode(thing)}" in browser.get("workers").text, "the worker")
        page = browser.get(f"act?name=drain&{urlencode(thing)}").text
        assert f"onerow drain {worker.name}" in page
        assert not is_dismissed(worker)
        answer = browser.post("act", {"name": "drain", **thing})
        assert answer.headers["location"] == "./workers"
        until(lambda: is_dismissed(worker), "the request")
        assert any(f"onerow drain {worker.name}" in record.getMessage() for record in caplog.records)
    assert browser.post("act", {"name": "drain", **thing}).status_code == 404


def test_the_system_page_explains_the_scaling_decision_and_shows_sizes(browser: Browser, ids: dict[str, str]) -> None:
    page = browser.get("system").text
    assert "max(1 busy, ceil((" in page or "max(0 busy, ceil((" in page
    assert "clips.script" in page
    assert re.search(r'id="size-[^"]+\.db"', page)


def test_an_act_on_more_than_100_tasks_needs_the_number_typed(
    browser: Browser, queue: Queue, ids: dict[str, str]
) -> None:
    queue.add_many("mails", [{"to": f"p{number}"} for number in range(120)])
    where = "pipeline:mails status:waiting"
    assert "Type 121 to confirm" in browser.get(f"act?{urlencode({'name': 'cancel', 'q': where})}").text
    answer = browser.post("act", {"name": "cancel", "q": where, "typed": "12"})
    assert answer.status_code == 422
    assert len(queue.find(where, limit=500).tasks) == 121
    browser.post("act", {"name": "cancel", "q": where, "typed": "121"})
    until(lambda: not queue.find(where).tasks, "the cancelled tasks")


def test_an_act_changes_no_more_tasks_than_were_confirmed(browser: Browser, queue: Queue) -> None:
    fill(queue)
    queue.add_many("mails", [{"to": f"p{number}"} for number in range(120)])
    query = {"name": "cancel", "q": "pipeline:mails status:waiting"}
    page = browser.get(f"act?{urlencode(query)}").text
    shown = re.search(r'name="count" value="(\d+)"', page)
    assert shown is not None
    later = [task.task_id for task in queue.add_many("mails", [{"to": "late"}, {"to": "later"}])]
    answer = browser.post("act", query | {"count": shown[1], "typed": shown[1]})
    assert answer.headers["location"] == "./operations"
    until(lambda: (done := queue.bulk_operations()[0]).operation == "cancel" and done.ended_at, "the operation")
    assert {task.task_id for task in queue.find(query["q"], limit=500).tasks} == set(later)
    none = browser.post("act", query | {"q": "pipeline:mails status:failed", "count": "0"})
    assert (none.status_code, "no task matches" in none.text) == (422, True)


def test_the_command_of_what_is_typed_is_shown_without_an_act(
    browser: Browser, queue: Queue, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = {"name": "signal", "id": ids["parked"], "a.name": "images.ready", "a.payload": '{"key": "x"}'}
    answer = browser.post("act", typed | {"only_command": "1"})
    assert "--payload &#39;{&#34;key&#34;:&#34;x&#34;}&#39;" in answer.text
    assert queue.get(ids["parked"]).awaiting == "signal:images.ready"
    monkeypatch.setattr(Selection, "count", property(lambda tasks: pytest.fail("counted again")))
    query = {"name": "retry", "q": "status:failed", "count": "7", "a.note": "again"}
    assert "--note again" in browser.post("act", query | {"only_command": "1"}).text
    assert queue.get(ids["failed"]).status == "failed"


def test_metadata_with_masked_secrets_are_not_stored(browser: Browser, queue: Queue, ids: dict[str, str]) -> None:
    secret = queue.add("mails", {"to": "x"}, metadata={"token": "hunter2", "lane": "a"}).task_id
    link = re.search(r'href="(act\?name=annotate[^"]+)"', browser.get(f"task?id={secret}").text)
    assert link is not None
    page = browser.get(html.unescape(link[1])).text
    shown = re.search(r'name="a.metadata"[^>]*>([^<]*)<', page)
    assert shown is not None
    act = {"name": "annotate", "id": secret, "a.metadata": html.unescape(shown[1])}
    answer = browser.post("act", act)
    assert (answer.status_code, "masked" in answer.text) == (422, True)
    assert queue.get(secret).metadata["token"] == "hunter2"
    browser.post("act", act | {"a.metadata": '{"lane": "b"}'})
    assert queue.get(secret).metadata == {"lane": "b"}


def test_limits_and_pauses_are_set_with_reason_and_author(browser: Browser, queue: Queue, ids: dict[str, str]) -> None:
    browser.post(
        "act", {"name": "limit", "pipeline": "clips", "phase": "script", "a.concurrency": "7", "a.per_key": "none"}
    )
    browser.post("act", {"name": "pause", "pipeline": "mails", "phase": "*", "a.reason": "maintenance"})
    rates = {"a.rate": "90/min", "a.reason": "slow model"}
    browser.post("act", {"name": "limit", "pipeline": "clips", "phase": "script", **rates})
    assert "90/min" in browser.get("phases").text
    assert "slow model" in browser.get("phases").text
    lanes = {(lane.pipeline, lane.phase): lane for board in _board(queue) for lane in board.lanes}
    assert (lanes["clips", "script"].limit, lanes["clips", "script"].per_key) == (7, None)
    pause = lanes["mails", "send"].paused
    assert pause is not None
    assert pause.reason == "maintenance"
    assert pause.by
    browser.post("act", {"name": "resume", "pipeline": "mails", "phase": "*"})
    assert next(lane for board in _board(queue) for lane in board.lanes if lane.phase == "send").paused is None


def _board(queue: Queue):  # type: ignore[no-untyped-def]

    return Views(queue).board().pipelines


def test_a_schedule_can_be_run_now(
    browser: Browser, queue: Queue, ids: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "onerow.web.audit")
    query = urlencode({"name": "run-schedule", "pipeline": "clips", "phase": "cron:weekdays"})
    assert "onerow add clips --payload" in browser.get(f"act?{query}").text
    answer = browser.post("act", {"name": "run-schedule", "pipeline": "clips", "phase": "cron:weekdays"})
    task_id = answer.headers["location"].partition("id=")[2]
    assert queue.get(task_id).payload == {"topic": "the week"}
    assert f"ran the schedule weekdays: added {task_id}" in caplog.text


def test_a_schedule_of_a_user_adds_a_task_of_that_user(browser: Browser, queue: Queue) -> None:
    news = Pipeline("news")

    @news.phase
    def send(payload: Any) -> None: ...

    news.cron("0 9 * * *", name="daily", user_id="u7")
    queue.publish(news)
    answer = browser.post("act", {"name": "run-schedule", "pipeline": "news", "phase": "cron:daily"})
    assert queue.get(answer.headers["location"].partition("id=")[2]).user_id == "u7"


def test_an_act_needs_its_role(queue: Queue, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASK_ACTS, "cancel", replace(TASK_ACTS["cancel"], role=Role.ADMIN))
    app = dashboard(queue, access=Access().with_token("o", "operator-token-0123456789", "operator"))
    operator = Browser(app, headers={"authorization": "Bearer operator-token-0123456789"})
    act = {"name": "cancel", "id": ids["waiting"]}
    assert operator.get(f"act?{urlencode(act)}").status_code == 403
    assert operator.post("act", act).status_code == 403
    assert queue.get(ids["waiting"]).status == "waiting"
    app.close()


def test_a_schedule_that_fails_shows_why(browser: Browser, queue: Queue, ids: dict[str, str]) -> None:
    (note,) = queue.store.notes(PROGRESS)
    assert queue.store.write_notes([replace(note, body=note.body | {"error": "payload needs a <topic>"})]) == [True]
    page = browser.get("schedules").text
    assert "adds no task" in page
    assert "payload needs a &lt;topic&gt;" in page
    assert "schedule weekdays of clips adds no task" in browser.get("").text


def test_a_task_is_added_from_the_form_and_mistakes_keep_what_was_typed(
    browser: Browser, queue: Queue, ids: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "onerow.web.audit")
    answer = browser.post("new", {"pipeline": "mails", "payload": '{"to": "kim"', "priority": "3"})
    assert answer.status_code == 422
    assert "not JSON" in answer.text
    assert "{&#34;to&#34;: &#34;kim&#34;" in answer.text
    deep = browser.post("new", {"pipeline": "mails", "payload": "[" * 50_000})
    assert (deep.status_code, "not JSON" in deep.text) == (422, True)
    deep = browser.post("act", {"name": "signal", "id": ids["waiting"], "a.name": "x", "a.payload": "[" * 50_000})
    assert (deep.status_code, "not JSON" in deep.text) == (422, True)
    answer = browser.post("new", {"pipeline": "mails", "payload": '{"to": "kim"}', "priority": "3", "run_at": "+10m"})
    task = queue.get(answer.headers["location"].partition("id=")[2])
    assert (task.payload, task.priority) == ({"to": "kim"}, 3)
    assert task.run_at > task.created_at
    assert f"onerow add mails: added {task.task_id}" in caplog.text


def test_the_form_copies_a_task_whole_and_checks_the_payload(browser: Browser, queue: Queue) -> None:
    letters = Pipeline("letters")

    @letters.phase
    def write(job: Letter) -> None: ...

    queue.publish(letters)
    task = queue.add("letters", {"text": " one\n two", "pages": 2, "sent": False})
    page = browser.get(f"new?like={task.task_id}").text
    assert '<textarea name="p.text" rows="4" required>\n one\n two</textarea>' in page
    assert (
        "queue.add(&#39;letters&#39;, {&#39;text&#39;: &#39; one\\n two&#39;, &#39;pages&#39;: 2, &#39;sent&#39;: False})"
        in page
    )
    form = {"pipeline": "letters", "typed": "1", "p.text": " one\r\n two", "p.pages": "0", "user_id": "kim"}
    answer = browser.post("new", form)
    assert answer.status_code == 422
    assert "pages: " in answer.text
    assert 'name="p.sent" value="true">' in answer.text  # it was not ticked, although that is the default
    assert "<details open>" in answer.text
    answer = browser.post("new", form | {"p.pages": "2"})
    added = queue.get(answer.headers["location"].partition("id=")[2])
    assert (added.payload, added.user_id) == (task.payload, "kim")
    # what the form has no field for is copied as JSON, and secrets are asked for
    with pytest.warns(match="the payload has the key 'password', which Letter does not have"):
        secret = queue.add("letters", {"text": "it's", "pages": 1, "password": "hunter2"})
    page = html.unescape(browser.get(f"new?like={secret.task_id}").text)
    assert '"password":"***"}</textarea>' in page
    assert "Secrets are not copied" in page
    assert shlex.join(["--payload", '{"text":"it\'s","pages":1,"password":"***"}']) in page


FORMULAS = ("=1+1", "+1+1", "-1+1+cmd|' /C calc'!A0", "@1+1", "\t=1+1", "\r=1+1", "\n=1+1", "\uff1d1+1")


def test_exports_have_every_matching_task_and_no_formula(
    browser: Browser, queue: Queue, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_EXPORTED_AT_ONCE", 2)
    for title in FORMULAS:
        queue.add("mails", {"to": "x"}, title=title, priority=-7)
    exported = browser.get("export?format=csv&q=pipeline:mails").content
    assert exported.startswith(b"\xef\xbb\xbf")  # without it a spreadsheet does not read UTF-8
    rows = list(csv.DictReader(io.StringIO(exported.decode("utf-8-sig"), newline="")))
    assert {row["task_id"] for row in rows} >= {ids["waiting"], ids["processing"]}
    assert {row["title"] for row in rows if "1+1" in row["title"]} == {f"'{title}" for title in FORMULAS}
    assert [row["priority"] for row in rows].count("-7") == len(FORMULAS)  # a number is no formula
    lines = browser.get("export?format=json&q=status:failed").text.splitlines()
    assert [json.loads(line)["task_id"] for line in lines] == [ids["failed"]]


def test_a_number_that_could_not_be_counted_whole_is_a_lower_bound(
    browser: Browser, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert browser.get("count?q=pipeline:clips").text == "4 tasks"
    assert browser.get("count?q=status:failed").text == "1 task"
    monkeypatch.setattr(counts, "_PAGE", 1)
    at_once = partial(counts.count_matching, within=timedelta(0))
    monkeypatch.setattr("onerow.engine.views.views.count_matching", lambda store, where, within: at_once(store, where))
    assert browser.get(f"count?{urlencode({'q': '조류'})}").text == "≥ 1 task"


def test_keyset_pages_show_every_task_once(browser: Browser, queue: Queue) -> None:
    fill(queue)
    queue.add_many("mails", [{"to": f"p{number}"} for number in range(120)])
    seen: list[str] = []
    page = "tasks?q=pipeline:mails"
    while page:
        text = browser.get(page).text
        seen += re.findall(r'id="row-([^"]+)"', text)
        found = re.search(r'href="(tasks\?[^"]+)" class="button small" rel="next"', text)
        page = found[1].replace("&amp;", "&") if found else ""
    assert len(seen) == len(set(seen)) == 122


def test_chosen_columns_stay_in_the_address_and_in_a_cookie(browser: Browser, ids: dict[str, str]) -> None:
    text = browser.get("tasks?col=task&col=user").text
    assert 'data-view="tasks?col=task&amp;col=user"' in text
    again = browser.get("tasks").text
    assert 'data-view="tasks?col=task&amp;col=user"' in again
    assert "<th>title</th>" not in again


def test_a_list_shows_the_words_tabs_and_columns_of_the_pipeline(browser: Browser, queue: Queue) -> None:
    labels = Labels(
        statuses={"waiting": "기다림"}, tabs=(Tab("Urgent <b>", "metadata.n:7"),), columns=("payload.url", "metadata.n")
    )
    pipeline = Pipeline("pages", labels=labels)
    pipeline.phase(name="fetch")(lambda job: job)
    queue.publish(pipeline)
    task = queue.add("pages", {"url": "https://example.test/<i>"}, metadata={"n": 7})
    page = browser.get("tasks?q=pipeline:pages").text
    assert '<span class="pill waiting" title="waiting">기다림</span>' in page
    assert "https://example.test/&lt;i&gt;" in page
    assert "<th>metadata.n</th>" in page
    tab = re.search(r'href="([^"]+)">Urgent &lt;b&gt;<', page)
    assert tab is not None
    assert 'aria-current="true">Urgent &lt;b&gt;' in browser.get(html.unescape(tab[1])).text
    assert "기다림" in browser.get(f"task?id={task.task_id}").text


def test_a_list_is_narrowed_by_status_pipeline_and_phase(browser: Browser, ids: dict[str, str]) -> None:
    def narrowed(query: str) -> dict[str, str]:
        """Each filter of the page by its name, with the query that it leads to."""
        page = browser.get(f"tasks?{urlencode({'q': query})}").text
        filters = page.partition('<nav class="facets"')[2].partition("</nav>")[0]
        links = re.findall(r'href="tasks(?:\?q=([^"]*))?"[^>]*>([^ <]+)', filters)
        return {name: unquote_plus(wanted) for wanted, name in links}

    assert narrowed("")["clips"] == "pipeline:clips"
    assert narrowed("status:failed")["mails"] == "status:failed pipeline:mails"
    in_clips = narrowed("pipeline:clips")
    assert in_clips["video"] == "pipeline:clips phase:video"
    assert in_clips["clips"] == ""  # and back to all pipelines
    assert in_clips["failed"] == "pipeline:clips status:failed"
    assert narrowed("pipeline:clips phase:video")["script"] == "pipeline:clips phase:script"
    assert narrowed("pipeline:clips phase:video")["clips"] == ""
    assert "mails" not in in_clips


def test_completions_know_keys_and_names(browser: Browser, ids: dict[str, str]) -> None:
    assert 'data-value="status:"' in browser.get("complete?q=sta").text
    assert 'data-value="status:failed phase:script"' in browser.get("complete?q=status:failed+phase:scr").text


def test_the_traceback_and_the_exact_numbers_are_shown(browser: Browser, ids: dict[str, str]) -> None:
    text = browser.get(f"task?id={ids['failed']}").text
    assert "ConnectionError" in text
    assert 'class="lib"' in text  # frames of libraries can be hidden
    assert "My code only" in text
    assert "12345678901234567" in browser.get(f"task?id={ids['completed']}&tab=steps").text


def test_a_traceback_without_frames_of_libraries_has_nothing_to_hide(browser: Browser, queue: Queue) -> None:
    notes = Pipeline("notes")

    @notes.phase(retry=Retry(0))
    def write(job: object) -> None:
        raise ValueError("no paper")

    task = queue.add(notes)
    Worker(queue, [notes], until_idle=True).run()
    text = browser.get(f"task?id={task.task_id}").text
    assert "no paper" in text
    assert "My code only" not in text
    assert "Correct the code first." not in text


def test_before_a_retry_of_a_permanent_failure_the_code_has_to_be_corrected(browser: Browser, queue: Queue) -> None:
    notes = Pipeline("notes")

    @notes.phase
    def write(job: object) -> None:
        raise Permanent("no paper")

    task = queue.add(notes)
    Worker(queue, [notes], until_idle=True).run()
    assert "Correct the code first." in browser.get(f"task?id={task.task_id}").text


def test_the_log_is_downloaded_as_text(browser: Browser, ids: dict[str, str]) -> None:
    answer = browser.get(f"log?id={ids['completed']}")
    assert "script#1 info writing about 조류의 비밀\n" in answer.text
    assert answer.headers["content-disposition"].startswith("attachment")
    assert browser.get("log?id=none").status_code == 404
    found = browser.get(f"task?id={ids['completed']}&tab=log&grep=^wr.*out").text
    assert "writing about" in found
    assert 'id="line-' not in browser.get(f"task?id={ids['completed']}&tab=log&grep=^nothing").text
    assert browser.get(f"task?id={ids['completed']}&tab=log&grep=%28").status_code == 422


def test_a_board_shows_the_tasks_of_its_pipeline_only(browser: Browser, queue: Queue, ids: dict[str, str]) -> None:
    other = Pipeline("songs", title="{topic}")

    @other.phase
    def script(job: Any) -> None: ...

    queue.publish(other)
    queue.fail(song := queue.add("songs", {"topic": "waves"}).task_id, "out of tune")
    cards = re.findall(r'id="card-([^"]+)"', browser.get("board?pipeline=songs").text)
    assert cards == [song]
    assert song not in browser.get("board?pipeline=clips").text


def test_a_cause_leads_to_its_tasks(browser: Browser, queue: Queue, ids: dict[str, str]) -> None:
    queue.fail(queue.add("clips", {"topic": "x"}).task_id, "not wanted")
    page = browser.get("failures").text
    cause = re.search(r'<h2><a href="(tasks\?[^"]+)">ConnectionError', page)
    assert cause is not None
    assert re.findall(r'id="row-([^"]+)"', browser.get(html.unescape(cause[1])).text) == [ids["failed"]]


def test_schedules_show_three_runs_and_the_overview_slots_and_what_no_worker_serves(
    browser: Browser, queue: Queue, ids: dict[str, str]
) -> None:
    (runs,) = re.findall(
        r'<td class="small"><span>((?:<time.*?</time>(?: · )?)+)</span>', browser.get("schedules").text
    )
    assert runs.count("<time") == 3
    assert "no worker" in browser.get("").text.partition("</nav>")[0]
    assert "1 task failed in clips.script" in browser.get("").text
    with closing(Queue(queue.url)) as other, working(other, mails(), clips(), concurrency=7):
        until(lambda: "7 slots" in browser.get("").text, "the slots")
        until(lambda: "no worker" not in browser.get("").text.partition("</nav>")[0], "the served phases")


def test_an_error_shows_nothing_of_the_queue_to_unknown_callers(queue: Queue, ids: dict[str, str]) -> None:
    app = dashboard(queue, authorize=lambda request: None)
    page = Browser(app).get("tasks")
    assert page.status_code == 403
    assert "clips" not in page.text
    app.close()


def test_a_viewer_sees_no_act_and_a_tenant_sees_only_its_tasks(queue: Queue, ids: dict[str, str]) -> None:
    access = (
        Access()
        .with_token("v", "viewer-token-0123456789", "viewer")
        .with_token("t", "tenant-token-0123456789", "operator", "u1")
    )
    app = dashboard(queue, access=access)
    viewer = Browser(app, headers={"authorization": "Bearer viewer-token-0123456789"})
    assert "act?name=" not in viewer.get(f"task?id={ids['failed']}").text
    assert viewer.get("new").status_code == 403
    assert viewer.get(f"act?name=retry&id={ids['failed']}").status_code == 403
    tenant = Browser(app, headers={"authorization": "Bearer tenant-token-0123456789"})
    listed = tenant.get("tasks").text
    assert ids["waiting"] in listed
    assert ids["failed"] not in listed
    for page in ("", "board", "failures", "waiting"):
        assert tenant.get(page).status_code == 200, page
    for page in ("workers", "system", "phases", "schedules", "operations"):
        assert tenant.get(page).status_code == 403, page
    assert tenant.get(f"task?id={ids['failed']}").status_code == 404
    app.close()


def test_languages_follow_the_browser_the_cookie_and_the_address(browser: Browser, ids: dict[str, str]) -> None:
    assert '<html lang="ko"' in browser.get("", headers={"accept-language": "ko-KR,ko;q=0.9,en;q=0.8"}).text
    assert '<html lang="zh-Hant"' in browser.get("tasks?lang=zh-TW").text
    assert browser.get("language?lang=ko&back=tasks").headers["location"] == "./tasks"
    assert '<html lang="ko"' in browser.get("tasks").text
    assert browser.get("language?lang=ko&back=https://elsewhere.test").headers["location"] == "./"


def test_vendored_files_are_the_ones_of_the_manifest(browser: Browser) -> None:
    import hashlib
    from importlib.resources import files

    folder = files("onerow.web") / "static" / "vendor"
    for part in msgspec.json.decode((folder / "manifest.json").read_bytes()):
        assert part["version"]
        assert (folder / part["license_file"]).read_text()
        for name, file in part["files"].items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == file["sha256"], name
            assert browser.get(f"static/vendor/{name}").status_code == 200


def test_a_page_with_its_scripts_and_styles_weighs_under_150_kb(browser: Browser, ids: dict[str, str]) -> None:
    text = browser.get("").text
    parts = re.findall(r'(?:src|href)="(static/[^"]+)"', text)
    packed = {"accept-encoding": "gzip"}
    weight = len(text) + sum(int(browser.get(part, headers=packed).headers["content-length"]) for part in parts)
    assert weight < 150_000


@pytest.mark.parametrize("path", ["static/../pages/basic.py", "static/%2e%2e/app.py", "static/vendor/manifest.json"])
def test_only_listed_files_are_served(browser: Browser, path: str) -> None:
    assert browser.get(path).status_code == 404


class Order(msgspec.Struct):
    """A payload with a field of each kind."""

    name: str
    count: int = 1
    gift: bool = False
    size: Literal["small", "large"] = "small"
    parts: list[str] = []
    note: str | None = None


def test_a_form_has_a_field_for_each_field_of_the_payload(browser: Browser, queue: Queue) -> None:
    orders = Pipeline("orders", payload=Order)

    @orders.phase
    def pack(job: Order) -> None: ...

    queue.publish(orders)
    page = browser.get("new?pipeline=orders").text
    for field in ("p.name", "p.count", "p.gift", "p.size", "p.parts", "p.note"):
        assert f'name="{field}"' in page, field
    fields = {"pipeline": "orders", "typed": "1", "p.name": "kim", "p.count": "3", "p.gift": "true", "p.size": "large"}
    answer = browser.post("new", fields | {"p.parts": "[1"})
    assert answer.status_code == 422
    assert 'value="kim"' in answer.text
    answer = browser.post("new", fields | {"p.parts": '["a", "b"]', "p.note": ""})
    task = queue.get(answer.headers["location"].partition("id=")[2])
    assert task.payload == {"name": "kim", "count": 3, "gift": True, "size": "large", "parts": ["a", "b"]}
    answer = browser.post("new", fields | {"p.name": "", "p.gift": "false", "unique": "one", "limit_key": "kim"})
    other = queue.get(answer.headers["location"].partition("id=")[2])
    assert (other.payload["name"], other.payload["gift"]) == ("", False)  # a required text may be empty
    assert (other.unique_key, other.limit_key) == ("one", "kim")
    again = browser.get(f"new?like={task.task_id}").text
    assert 'name="p.name" value="kim"' in again
    assert 'name="payload"' in browser.get("new?pipeline=orders&raw=1").text


def test_a_lane_whose_tasks_are_not_among_the_latest_leads_to_them(
    browser: Browser, queue: Queue, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screens, "_CARDS", 1)
    old = queue.add("mails", {"to": "kim"}).task_id
    queue.fail(old, "the address does not exist")
    for number in range(2):
        queue.fail(queue.add("clips", {"topic": f"later {number}"}).task_id, "too late")
    page = browser.get("board?pipeline=mails").text
    assert f'id="card-{old}"' not in page
    assert "Nothing is running or failed here." not in page
    assert "tasks?q=pipeline%3Amails+phase%3Asend+status%3Afailed" in page


def test_the_waiting_room_stays_one_on_its_next_page_and_in_its_export(browser: Browser, queue: Queue) -> None:
    fill(queue)
    pipeline = Pipeline("letters")
    pipeline.wait_for("answer", signal="answer")
    queue.publish(pipeline)
    queue.add_many("letters", [{"number": number} for number in range(60)])
    until(lambda: len(queue.find("status:parked", limit=100).tasks) > 60, "the parked tasks")
    text = browser.get("waiting").text
    found = re.search(r'href="([^"]+)" class="button small" rel="next"', text)
    assert found is not None
    following = browser.get(found[1].replace("&amp;", "&")).text
    assert "<h1>Waiting room</h1>" in following
    export = re.search(r'href="(export\?[^"]*format=csv[^"]*)"', text)
    assert export is not None
    rows = list(csv.DictReader(io.StringIO(browser.get(export[1].replace("&amp;", "&")).text)))
    assert {row["parked"] for row in rows} == {"true"}


def test_a_search_that_stopped_can_be_continued(
    browser: Browser, queue: Queue, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "TEXT_SEARCH_FOR", timedelta(0))
    now = queue.store.now()
    queue.store.insert([a_task(f"new{number}", created_at=now, run_at=now, updated_at=now) for number in range(1_000)])
    page = browser.get(f"tasks?q={quote('title:조류')}").text
    assert "No match so far" in page
    assert "the search stopped at tasks of" in page
    for _ in range(3):
        (further,) = re.findall(r'href="([^"]*)"[^>]*rel="next"', page) or [""]
        if not further:
            break
        page = browser.get(html.unescape(further)).text
    assert ids["waiting"] in page


def test_schedules_are_shown_page_by_page(browser: Browser, queue: Queue) -> None:
    crons = Pipeline("crons")

    @crons.phase
    def one(payload: Any) -> None: ...

    for number in range(250):
        crons.cron(f"{number % 60} 5 * * *", name=f"c{number}")
    queue.publish(crons)
    found, address = [], "schedules"
    while address:
        page = browser.get(address).text
        found.append(re.findall(r'id="cron-crons-(c\d+)"', page))
        address = html.unescape("".join(re.findall(r'href="([^"]*)"[^>]*rel="next"', page)))
    assert [len(names) for names in found] == [100, 100, 50]
    assert len({name for names in found for name in names}) == 250


def test_a_scrape_asks_an_absent_store_once(
    queue: Queue, app: Dashboard, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def notes(kind: str, **given: Any) -> Any:
        asked.append(kind)
        raise StoreUnavailable("away")

    monkeypatch.setattr(queue.store, "notes", notes)
    assert "onerow_store_up 0.0" in browser.get("metrics").text
    assert len(asked) == 1
