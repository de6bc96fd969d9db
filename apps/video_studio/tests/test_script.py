"""Scripts from a template, or from a chat endpoint whose errors are classified for the queue."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from apps.video_studio.tests.chat_server import ChatServer, dropping, refusing, saying
from apps.video_studio.tests.kit import work
from onerow import Queue, Task
from video_studio import add_video
from video_studio.script import from_template, reading_time
from video_studio.writer import retry_after


@pytest.fixture
def endpoint(chat: ChatServer, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> ChatServer:
    monkeypatch.setenv("STUDIO_OPENAI_BASE_URL", f"{chat.url}/v1/")
    monkeypatch.setenv("STUDIO_OPENAI_API_KEY", "sk-studio-secret")
    monkeypatch.setenv("STUDIO_OPENAI_MODEL", "small-model")
    return chat


def after_one_try(queue: Queue) -> Task:
    task = add_video("밀물과 썰물")
    work()
    return queue.get(task.task_id)


@pytest.mark.contract("A script is made from a template, offline and the same for the same topic.")
@pytest.mark.parametrize("topic", ["tides", "Clouds", "조수와 달", "{topic} {0} %s", "👨‍👩‍👧"])
def test_a_script_is_made_from_a_template_and_is_the_same_for_the_same_topic(topic: str) -> None:
    script = from_template(topic)
    assert script == from_template(topic)
    assert len(script.scenes) == 5
    assert all(scene.title and scene.caption and 3 <= scene.seconds <= 8 for scene in script.scenes)
    if topic != "tides":
        assert topic in script.title
        assert sum(topic in scene.caption for scene in script.scenes) == 5
    assert 15 < script.seconds < 60


def test_neighbouring_topics_get_different_scripts() -> None:
    texts = {from_template(f"x{n}").scenes[0].title for n in range(20)}
    assert len(texts) == 2


def test_longer_captions_are_shown_longer_also_in_scripts_without_spaces() -> None:
    assert reading_time("short") < reading_time("a much longer caption that takes some time to read, twelve words")
    assert reading_time("潮") < reading_time("潮の満ち引きは月の引力によって起こる現象で、一日に約二回繰り返される" * 2)


@pytest.mark.contract("A script comes from any OpenAI-compatible endpoint when one is configured.")
def test_a_script_comes_from_an_openai_compatible_endpoint_when_one_is_configured(
    queue: Queue, endpoint: ChatServer
) -> None:
    done = after_one_try(queue)
    assert (done.type, done.results["script"]["title"]) == ("image", "Ebb & flow")
    assert [scene["caption"] for scene in done.results["script"]["scenes"]] == ["The sea comes.", "The sea goes."]
    ((path, key, body),) = endpoint.asked
    assert (path, key, body["model"]) == ("/v1/chat/completions", "Bearer sk-studio-secret", "small-model")
    assert body["messages"][-1] == {"role": "user", "content": "밀물과 썰물"}


def test_a_script_in_a_fence_is_read_too(queue: Queue, endpoint: ChatServer) -> None:
    endpoint.turns = [saying('```json\n{"title": "T", "scenes": [{"title": "a", "caption": "b"}]}\n```')]
    assert after_one_try(queue).results["script"]["title"] == "T"


def test_too_many_requests_wait_as_long_as_the_endpoint_says(queue: Queue, endpoint: ChatServer) -> None:
    endpoint.turns = [refusing(429, Retry_After="40")]
    task = after_one_try(queue)
    assert (task.status, task.error_class, task.retry_count) == ("waiting", "limit", 1)
    assert timedelta(seconds=30) < task.run_at - queue.store.now() <= timedelta(seconds=40)


def test_a_refused_key_fails_at_once_and_the_key_is_in_no_error(queue: Queue, endpoint: ChatServer) -> None:
    endpoint.turns = [refusing(401)]
    task = after_one_try(queue)
    assert (task.status, task.type, task.error_class, task.retry_count) == ("failed", "script", "auth", 0)
    assert "sk-studio-secret" not in str(task.logs_json) + str(task.error)


@pytest.mark.contract("What fails is retried by itself.")
@pytest.mark.parametrize("turn", [dropping, refusing(500), refusing(503)], ids=["dropped", "500", "503"])
def test_what_fails_on_the_network_is_retried_by_itself(queue: Queue, endpoint: ChatServer, turn: object) -> None:
    endpoint.turns = [turn]  # type: ignore[list-item]
    task = after_one_try(queue)
    assert (task.status, task.type, task.error_class, task.retry_count) == ("waiting", "script", "network", 1)
    assert task.run_at > queue.store.now()
    queue.reschedule(task.task_id, queue.store.now())
    work()
    assert queue.get(task.task_id).type == "image"
    assert len(endpoint.asked) == 2


def test_a_model_that_is_not_there_fails_for_good(queue: Queue, endpoint: ChatServer) -> None:
    endpoint.turns = [refusing(404)]
    task = after_one_try(queue)
    assert (task.status, task.error_class) == ("failed", "permanent")


@pytest.mark.parametrize("answer", ["hello", "{}", {"title": "T", "scenes": []}, {"title": " ", "scenes": [{}]}])
def test_an_answer_that_is_no_script_is_worth_another_try(queue: Queue, endpoint: ChatServer, answer: object) -> None:
    endpoint.turns = [saying(answer)]
    task = after_one_try(queue)
    assert (task.status, task.error_class) == ("waiting", "unknown")
    assert "script" in str(task.error)


@pytest.mark.parametrize(
    "header, seconds",
    [("7", 7), ("0.5", 0.5), ("Sun, 06 Nov 2022 08:50:07 GMT", 30), ("soon", 60), ("", 60), ("-5", 60)],
)
def test_retry_after_is_seconds_or_a_date_or_a_minute(header: str, seconds: float) -> None:
    now = datetime(2022, 11, 6, 8, 49, 37, tzinfo=UTC)
    assert retry_after(httpx.Response(429, headers={"Retry-After": header}), now) == timedelta(seconds=seconds)
