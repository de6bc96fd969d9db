"""Tagging through a model: batches, checks of each item, usage, limits of the provider."""

import asyncio
import json
import socket
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_tagger import pipeline
from ai_tagger.jobs import tagging
from ai_tagger.model import ChatTagger, NotTagged, Unanswerable, _retry_after, _span
from ai_tagger.offline.model_server import KEY, MODEL, ModelServer, Request, Turn, good, refusing
from ai_tagger.posts import retag
from ai_tagger.settings import Endpoint, Settings
from ai_tagger.tags import TAGS
from ai_tagger.usage import cost, divide
from apps.ai_tagger.tests.kit import Desk, a_post, until
from onerow.engine.views import Views
from tests.engine.kit import everything, texts, working

GYM = {"workspace": "gym", "account": "헬스장"}


def rules(request: Request, changed: Callable[[str], Any]) -> None:
    """Answer for each text with what `changed` returns; None leaves the item out."""
    given = [(number, changed(text)) for number, text in enumerate(request.texts, 1)]
    request.complete({"posts": [{"id": number, "tags": tags} for number, tags in given if tags is not None]})


@pytest.mark.contract("A batch of posts is tagged per call through any OpenAI-compatible endpoint.")
def test_ten_posts_are_tagged_per_call(desk: Desk, model: ModelServer) -> None:
    desk.sync(
        *(a_post(number) for number in range(12)), a_post(90, text="강아지가 꼬리를 흔든다"), a_post(91, text="看醫生")
    )
    desk.work()
    assert [len(call) for call in model.calls] == [10, 4]
    tags = desk.tags()
    assert (tags["t1"], tags["t90"], tags["t91"]) == (["food"], ["pets"], ["health"])
    assert set(model.authorizations) == {f"Bearer {KEY}"}
    question = model.questions[0]
    assert question["model"] == MODEL
    schema = question["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["properties"]["posts"]["items"]["properties"]["tags"]["items"]["enum"] == list(TAGS)
    assert desk.sql("SELECT DISTINCT tagged_by, tagged_revision FROM workspace_threads_posts") == [(MODEL, 1)]


@pytest.mark.contract("Structured output is checked item by item: one bad item fails alone.")
def test_one_bad_item_fails_alone(desk: Desk, model: ModelServer) -> None:
    bad: dict[str, Any] = {"made up": ["unicorns"], "left out": None, "no list": "food", "too many": list(TAGS[:6])}
    model.usual = lambda request: rules(request, lambda text: bad.get(text, ["food"]))
    desk.sync(*(a_post(number, text=text) for number, text in enumerate([*bad, "good 1", "good 2"])))
    desk.work_until(desk.all_ended, "the end")
    errors = {error: (status, attempts) for status, attempts, error in desk.jobs() if status == "failed"}
    assert set(errors.values()) == {("failed", 3)}
    assert len(errors) == 4
    assert "unicorns" not in str(errors)  # it could be the text of another post
    for part in ("made up a tag", "leaves this post out", "not valid", "6 tags, more than 5"):
        assert any(part in str(error) for error in errors), errors
    assert [tags for tags in desk.tags().values() if tags] == [["food"], ["food"]]


def test_items_are_checked_one_by_one() -> None:
    def answer(content: Any) -> Any:
        async def ask() -> Any:
            with ModelServer() as server:
                server.usual = lambda request: request.complete(content)
                chat = ChatTagger(Endpoint(server.url, MODEL), TAGS)
                try:
                    return (await chat.ask(["a", "b"])).items
                finally:
                    await chat.close()

        return asyncio.run(ask())

    right = {"id": 1, "tags": ["food", "food", "travel"]}
    first, second = answer({"posts": [right, right, {"id": 7, "tags": []}, {"id": True}, 5, {"tags": ["food"]}]})
    assert isinstance(first, NotTagged)
    assert "twice" in first.reason
    assert isinstance(second, NotTagged)
    assert "leaves this post out" in second.reason
    assert answer("```json\n" + json.dumps({"posts": [{"id": 2, "tags": []}, right]}) + "\n```") == [
        ("food", "travel"),
        (),
    ]
    for wrong in ("no JSON", {"posts": 3}, "[]"):
        with pytest.raises(Unanswerable, match="not the JSON"):
            answer(wrong)


@pytest.mark.parametrize(
    "turn",
    [
        refusing(400, "content policy"),
        refusing(500),
        lambda request: request.complete("{", finish_reason="length"),
        lambda request: request.complete("sorry"),
        lambda request: request.complete("[" * 100_000),
        lambda request: request.answer(200, b"<html>"),
        lambda request: request.answer(200, b"x" * 6_000_000),
        lambda request: request.connection.shutdown(socket.SHUT_RDWR),
    ],
    ids=["400", "500", "cut off", "no JSON", "deep", "no completion", "endless", "broken off"],
)
def test_a_post_that_spoils_every_batch_fails_alone(desk: Desk, model: ModelServer, turn: Turn) -> None:
    model.usual = lambda request: (turn if "poison" in request.texts else good)(request)
    desk.sync(*(a_post(number) for number in range(4)), a_post(9, text="poison"))
    desk.work_until(desk.all_ended, "the end")
    assert sorted(status for status, _, _ in desk.jobs()) == ["completed"] * 4 + ["failed"]
    assert list(desk.tags().values()).count(["food"]) == 4
    assert all(call.count("poison") <= 1 for call in model.calls)


def test_a_call_that_gave_no_usable_answer_was_paid(desk: Desk, model: ModelServer) -> None:
    model.turns = [lambda request: request.complete("{", finish_reason="length")]
    desk.sync(a_post(1), a_post(2))
    desk.work()
    assert [len(call) for call in model.calls] == [2, 1, 1]
    assert desk.sql("SELECT sum(input_tokens), sum(output_tokens), count(*) FROM llm_usage_logs") == [
        (300 + 2 * len("".join(model.calls[0])), 12 * 4, 3)
    ]
    assert {job[0] for job in desk.jobs()} == {"completed"}


@pytest.mark.parametrize(
    "usage, tokens",
    [({"prompt_tokens": "9", "completion_tokens": 2**64}, (None, None)), ([], (None, None)),
     ({"prompt_tokens": -5, "completion_tokens": 7}, (None, 7))],
)  # fmt: skip
def test_tags_are_kept_whatever_the_usage_and_the_name_of_the_model_look_like(
    desk: Desk, model: ModelServer, usage: Any, tokens: tuple[int | None, int | None]
) -> None:
    def odd(request: Request) -> None:
        content = json.dumps({"posts": request.items()})
        request.answer(200, {"model": "m\0" * 1000, "choices": [{"message": {"content": content}}], "usage": usage})

    model.usual = odd
    desk.sync(a_post())
    desk.work()
    assert desk.tags() == {"t1": ["food"]}
    ((name, *given),) = desk.sql("SELECT model, input_tokens, output_tokens FROM llm_usage_logs")
    assert (name, tuple(given)) == ("m" * 200, tokens)


def test_posts_of_two_workspaces_are_never_in_one_call(desk: Desk, model: ModelServer) -> None:
    desk.sync(a_post(1), a_post(2, text="축구 경기", **GYM), a_post(3))
    desk.work()
    assert sorted(map(len, model.calls)) == [1, 2]
    assert ["축구 경기"] in model.calls
    assert desk.tags() == {"t1": ["food"], "t2": ["sports"], "t3": ["food"]}


def test_an_answer_is_kept_until_it_can_be_written(
    desk: Desk, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0

    class Full(psycopg.AsyncConnection[Any]):
        async def execute(self, query: Any, *given: Any, **options: Any) -> Any:
            nonlocal refused
            if refused < 3 and query is pipeline._WRITE_TAGS:
                refused += 1
                await super().execute("SET TRANSACTION READ ONLY")
            return await super().execute(query, *given, **options)

    monkeypatch.setattr(pipeline, "AsyncConnection", Full)
    desk.sync(a_post())
    desk.work()
    assert (refused, len(model.calls)) == (3, 1)
    assert desk.tags() == {"t1": ["food"]}
    assert desk.sql("SELECT count(*), sum(posts) FROM llm_usage_logs") == [(1, 1)]


@pytest.mark.contract("Usage is logged: tokens and cost, per account.")
def test_usage_and_cost_are_logged_per_account(desk: Desk, model: ModelServer) -> None:
    desk.sync(*(a_post(number) for number in range(6)), *(a_post(10 + number, account="헬스장") for number in range(3)))
    desk.work()
    rows = desk.sql(
        "SELECT a.name, u.model, u.posts, u.input_tokens, u.output_tokens, u.cost, u.call_id FROM llm_usage_logs AS u "
        "JOIN workspace_threads_accounts AS a ON a.id = u.workspace_threads_account_id ORDER BY u.posts"
    )
    assert [row[:3] for row in rows] == [("헬스장", MODEL, 3), ("카페 ☕", MODEL, 6)]
    assert len({row[6] for row in rows}) == 1  # one call
    asked = 100 + sum(map(len, model.calls[0]))
    assert sum(row[3] for row in rows) == asked
    assert sum(row[4] for row in rows) == 12 * 9
    expected = (asked * Decimal("0.15") + 108 * Decimal("0.60")) / 1_000_000
    assert sum(row[5] for row in rows) == expected


def test_an_endpoint_that_does_not_say_its_usage_has_no_cost(desk: Desk, model: ModelServer) -> None:
    def silent(request: Request) -> None:
        content = json.dumps({"posts": request.items()})
        request.answer(200, {"choices": [{"message": {"content": content}}]})

    model.usual = silent
    desk.sync(a_post())
    desk.work()
    assert desk.sql("SELECT model, posts, input_tokens, cost FROM llm_usage_logs") == [(MODEL, 1, None, None)]


@given(st.integers(0, 10**9), st.lists(st.integers(1, 10_000), min_size=1, max_size=10))
def test_shares_add_up_to_the_whole(total: int, weights: list[int]) -> None:
    shares = divide(total, weights)
    assert sum(shares) == total
    assert all(abs(share - total * weight / sum(weights)) <= 1 for share, weight in zip(shares, weights, strict=True))


def test_the_price_of_tokens() -> None:
    endpoint = Endpoint("http://x", "m", input_price=Decimal("2.5"), output_price=Decimal(10))
    assert cost(endpoint, 1_000_000, 100_000) == Decimal("3.5")
    assert cost(endpoint, None, 5) is None
    assert cost(None, 0, 0) == 0


@pytest.mark.contract("Rate limits of the provider are obeyed.")
def test_a_429_holds_the_phase_for_retry_after_and_costs_no_attempt(desk: Desk, model: ModelServer) -> None:
    model.turns = [refusing(429, Retry_After="3600")]
    desk.sync(*(a_post(number) for number in range(15)))
    desk.work(concurrency=1)
    assert len(model.calls) == 1  # the second batch did not start
    assert {(task.status, task.retry_count) for task in everything(desk.queue)} == {("waiting", 0)}
    sentence = Views(desk.queue).why(everything(desk.queue)[-1]).sentence
    assert "too many requests (429)" in sentence


def test_after_the_hold_the_jobs_go_on_however_often_the_provider_refuses(desk: Desk, model: ModelServer) -> None:
    model.turns = [refusing(429, Retry_After="0.2")] * 3
    desk.sync(a_post(1), a_post(2))
    desk.work_until(desk.all_ended, "the end")
    assert {(task.status, task.retry_count) for task in everything(desk.queue)} == {("completed", 0)}
    assert len(model.calls) == 4


def test_a_used_up_window_is_waited_for(model: ModelServer) -> None:
    async def ask_twice(reset: str) -> None:
        headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": reset}
        model.turns = [lambda request: request.complete({"posts": request.items()}, **headers)]
        chat = ChatTagger(Endpoint(model.url, MODEL), TAGS)
        try:
            await chat.ask(["soup"])
            await chat.ask(["soup"])
        finally:
            await chat.close()

    asyncio.run(ask_twice("50ms"))
    assert len(model.calls) == 2
    with pytest.raises(Exception, match="window of requests is used up") as caught:
        asyncio.run(ask_twice("1h0m0s"))
    assert caught.value.scope == "phase"  # type: ignore[attr-defined]
    assert len(model.calls) == 3
    spans = {"6m0s": 360, "1.5s": 1.5, "200ms": 0.2, "7": 7, "": None, "soon": None, "1d2h": 93600}
    assert {text: _span(text) for text in spans} == spans


@pytest.mark.parametrize(
    "turn, named",
    [
        (refusing(401), "TAGGER_API_KEY"),
        (refusing(404), "TAGGER_MODEL"),
        (refusing(503), "unavailable (503)"),
        (refusing(429, "insufficient_quota"), "spent quota"),
    ],
    ids=["401", "404", "503", "quota"],
)
def test_what_concerns_all_posts_uses_up_none(desk: Desk, model: ModelServer, turn: Turn, named: str) -> None:
    model.usual = turn
    desk.sync(a_post())
    desk.work()
    (job,) = everything(desk.queue)
    assert (job.status, job.retry_count) == ("waiting", 0)
    assert named in str([note.body for note in desk.queue.store.notes("hold")])


@pytest.mark.parametrize(
    "turn, named",
    [
        (refusing(500), "(500)"),
        (refusing(400, "response_format is not supported"), "response_format is not supported"),
        (lambda request: request.answer(200, {"error": {"message": "out of memory"}}), "out of memory"),
        (refusing(301), "TAGGER_MODEL_URL"),
        (lambda request: request.connection.shutdown(socket.SHUT_RDWR), "the connection to the model broke"),
    ],
    ids=["500", "400", "200 with an error", "301", "broken off"],
)
def test_a_fault_of_the_provider_fails_no_post(desk: Desk, model: ModelServer, turn: Turn, named: str) -> None:
    model.usual = turn
    desk.sync(*(a_post(number) for number in range(4)))
    desk.work()
    assert len(model.calls) <= 2  # the batch, and a harmless text
    assert {(task.status, task.retry_count) for task in everything(desk.queue)} == {("waiting", 0)}
    assert named in str([note.body for note in desk.queue.store.notes("hold")])


def test_a_batch_that_the_model_is_too_slow_for_is_asked_in_halves(
    desk: Desk, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAGGER_TIMEOUT", "2")

    def slow(request: Request) -> None:
        if len(request.texts) > 1:
            model.released.wait(120)
        request.complete({"posts": request.items()})

    model.usual = slow
    desk.sync(a_post(1), a_post(2))
    desk.work_until(desk.all_ended, "the end")
    assert sorted(map(len, model.calls)) == [1, 1, 1, 2]
    assert {(task.status, task.retry_count) for task in everything(desk.queue)} == {("completed", 0)}


@pytest.mark.parametrize(
    "given, seconds",
    [("0", 1), ("7.5", 7.5), ("999999999", 3600), ("nan", 60), ("-5", 60), ("", 60), ("soon", 60),
     ("Fri, 31 Dec 9999 23:59:59 GMT", 3600), ("Thu, 01 Jan 1970 00:00:00 GMT", 1)],
)  # fmt: skip
def test_a_wait_that_the_provider_asks_for_has_bounds(given: str, seconds: float) -> None:
    assert _retry_after(httpx.Response(429, headers={"Retry-After": given}), 60) == seconds


def test_a_model_that_can_not_be_reached_uses_up_no_attempt(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGGER_MODEL_URL", "http://127.0.0.1:9/v1")
    desk.sync(a_post())
    desk.work()
    (job,) = everything(desk.queue)
    assert (job.status, job.retry_count) == ("waiting", 0)
    assert "TAGGER_MODEL_URL" in str([note.body for note in desk.queue.store.notes("hold")])


def test_the_key_is_in_no_error_log_or_row(desk: Desk, model: ModelServer) -> None:
    refuse = refusing(400, f"your key {KEY} is not allowed to ask that")
    model.usual = lambda request: (refuse if "poison" in request.texts else good)(request)
    desk.sync(a_post(text="poison"))
    desk.work_until(desk.all_ended, "the end")
    ((status, _, error),) = desk.jobs()
    assert status == "failed"
    assert "not allowed to ask" in str(error)
    (task,) = everything(desk.queue)
    logged = texts(desk.queue, task)
    model.usual = refuse
    desk.sync(a_post())
    desk.work()
    notes = [note.body for note in desk.queue.store.notes("hold")]
    assert "not allowed to ask" in str(notes)
    assert KEY not in f"{error} {task!r} {logged} {desk.settings!r} {notes}"


@pytest.mark.contract("`failed` means both 'again' and 'dead'.")
def test_again_is_pending_and_dead_is_failed(desk: Desk) -> None:
    desk.sync(a_post())
    for attempt in (1, 2, 3):
        until(lambda: desk.sql("SELECT 1 FROM onerow.task_queue WHERE run_at <= now()"), "the time of the next attempt")
        with desk.queue.claim(tagging) as (lease,):
            lease.fail("the answer made no sense")
        expected = "failed" if attempt == 3 else "pending"
        assert desk.jobs() == [(expected, attempt, "the answer made no sense")]
    assert len(desk.queue.claim(tagging)) == 0


@pytest.mark.contract("Failed is tried again at once, oldest first, and starves the new.")
def test_what_failed_waits_and_new_posts_come_first(desk: Desk) -> None:
    old = desk.sync(*(a_post(number) for number in range(10)))
    new = desk.sync(*(a_post(number) for number in range(10, 15)))
    with desk.queue.claim(tagging, limit=10) as leases:
        assert {lease.payload["post_id"] for lease in leases} == set(old)
        for lease in leases:
            lease.fail("no")
    assert desk.sql(
        "SELECT count(*) FROM onerow.task_queue WHERE status = 'waiting' AND run_at > created_at AND retry_count = 1"
    ) == [(10,)]
    with desk.queue.claim(tagging, limit=5) as leases:
        assert {lease.payload["post_id"] for lease in leases} == set(new)


def test_a_post_that_changes_during_the_call_is_tagged_by_its_new_text(desk: Desk, model: ModelServer) -> None:
    model.turns = [model.waiting]
    desk.sync(a_post(text="delicious soup"))
    with working(desk.queue):
        until(lambda: model.calls, "the call")
        desk.sync(a_post(text="the basketball match"))
        model.released.set()
        until(desk.all_ended, "the end")
    assert desk.tags() == {"t1": ["sports"]}
    assert model.calls == [["delicious soup"], ["the basketball match"]]
    assert {job[0] for job in desk.jobs()} == {"completed"}


@pytest.mark.parametrize("when", ["recorded", "recorded, and its worker died"])
def test_a_post_that_changes_after_its_tags_were_recorded_is_tagged_again(
    desk: Desk, model: ModelServer, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    record = pipeline._record

    async def record_and_change(*given: Any) -> Any:
        monkeypatch.setattr(pipeline, "_record", record)
        written = await record(*given)
        await asyncio.to_thread(desk.sync, a_post(text="the basketball match"))
        if when != "recorded":
            raise httpx.ReadError("before the job is completed")
        return written

    monkeypatch.setattr(pipeline, "_record", record_and_change)
    desk.sync(a_post(text="delicious soup"))
    desk.work_until(lambda: desk.all_ended() and len(model.calls) == 2, "the second call")
    assert model.calls == [["delicious soup"], ["the basketball match"]]
    assert desk.tags() == {"t1": ["sports"]}
    assert {job[0] for job in desk.jobs()} == {"completed"}


def test_a_post_that_changes_several_times_ends_with_the_tags_of_its_newest_text(
    desk: Desk, model: ModelServer
) -> None:
    model.turns = [model.waiting]
    desk.sync(a_post(text="delicious soup"))
    with working(desk.queue):
        until(lambda: model.calls, "the call")
        for text in ("a kitten", "a flight", "the basketball match"):
            desk.sync(a_post(text=text))
        assert desk.run("retag", "--account", "카페 ☕").exit_code == 0
        model.released.set()
        until(desk.all_ended, "the end")
    assert desk.tags() == {"t1": ["sports"]}


def test_a_new_job_replaces_the_failed_ones_of_its_post(desk: Desk) -> None:
    one, _ = desk.sync(a_post(1), a_post(2))
    desk.sql("UPDATE ai_tag_queue SET status = 'failed', error_message = 'no'")
    retag(desk.settings, [one])
    assert sorted(job[0] for job in desk.jobs()) == ["failed", "pending"]
    desk.sync(a_post(2, text="the basketball match"))
    assert [job[0] for job in desk.jobs()] == ["pending"] * 2


def test_a_job_that_names_another_account_than_its_post_does_is_cancelled(desk: Desk, model: ModelServer) -> None:
    desk.sync(a_post(1), a_post(2, **GYM))
    desk.work()
    desk.sql(
        "INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) SELECT a.id, p.id FROM "
        "workspace_threads_accounts AS a JOIN workspace_threads_posts AS p ON p.workspace_threads_account_id <> a.id"
    )
    desk.sql(
        "INSERT INTO ai_tag_queue (workspace_threads_account_id, post_id) SELECT id, gen_random_uuid() FROM workspaces"
    )
    asked = len(model.calls)
    desk.work()
    assert len(model.calls) == asked
    statuses = sorted(task.status for task in everything(desk.queue))
    assert statuses == ["cancelled"] * 4 + ["completed"] * 2


def test_jobs_of_one_post_in_one_batch_ask_for_it_once(desk: Desk, model: ModelServer) -> None:
    desk.sync(a_post(text="delicious soup"))
    with desk.queue.claim(tagging) as (lease,):
        desk.sync(a_post(text="the basketball match"))
        lease.hand_back()
    desk.work_until(desk.all_ended, "the end")
    assert model.calls == [["the basketball match"]]
    assert [job[0] for job in desk.jobs()] == ["completed"] * 2


def test_settings_that_are_wrong_name_the_variable() -> None:
    wrong = {
        "TAGGER_MODEL_URL": "ftp://x",
        "TAGGER_TAGS": "cars",
        "TAGGER_RATE": "often",
        "TAGGER_GATHER": "soon",
        "TAGGER_SERVICE_ROLE": 'x"; DROP',
    }
    for name, value in wrong.items():
        with pytest.raises(Exception, match=name):
            Settings.of_environment({name: value})
    model = {"TAGGER_MODEL_URL": "http://x/v1/"}
    for name, value in {"TAGGER_INPUT_PRICE": "free", "TAGGER_ANSWER_FORMAT": "xml", "TAGGER_TIMEOUT": "-1"}.items():
        with pytest.raises(Exception, match=name):
            Settings.of_environment(model | {name: value})
    read = Settings.of_environment(model | {"TAGGER_TAGS": "차, 집,차", "TAGGER_API_KEY": "k-secret"})
    assert read.tags == ("차", "집")
    assert "k-secret" not in repr(read)
