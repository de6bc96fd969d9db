"""Payloads and results as pydantic models."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, Field

from onerow import BadPayload, Item, Pipeline, Status
from onerow.engine.queue.queue import Queue
from onerow.engine.queue.scope import plan_of
from tests.engine.conftest import ended, working
from tests.engine.kit import ON_SQLITE


class Post(BaseModel):
    text: str = Field(min_length=1)
    at: datetime
    tags: list[str] = []


class Verdict(BaseModel):
    score: float
    post: Post


posts = Pipeline("posts", title="{text}")


@posts.phase
def judge(post: Post) -> Verdict:
    assert post.at.tzinfo is not None
    return Verdict(score=0.5, post=post)


@posts.phase
async def publish(post: Post, judge: Verdict) -> list[Any]:
    return [judge.score, judge.post == post]


@posts.batch("index", size=3)
def index(items: list[Item[Post]]) -> None:
    for item in items:
        item.done(item.payload.text.upper())


NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def test_payloads_and_results_are_passed_as_models(queue: Queue) -> None:
    with working(queue, posts):
        given = queue.add(posts, Post(text="tides", at=NOON))
        plain = queue.add(posts, {"text": "waves", "at": "2026-01-05T12:00:00Z"})
        for task, word in ((given, "TIDES"), (plain, "WAVES")):
            found = ended(queue, task.task_id)
            assert (found.status, found.error) == (Status.COMPLETED, None)
            assert (found.results["publish"], found.results["index"]) == ([0.5, True], word)
    assert queue.get(given.task_id).payload == {"text": "tides", "at": "2026-01-05T12:00:00Z", "tags": []}
    assert queue.get(given.task_id).title == "tides"


@pytest.mark.parametrize("payload", [{"text": "", "at": "2026-01-05T12:00:00Z"}, {"text": "a"}, "words"])
def test_an_invalid_payload_is_refused_and_nothing_is_stored(queue: Queue, payload: Any) -> None:
    with pytest.raises(BadPayload, match="payload is not a valid Post"):
        queue.add(posts, payload)
    assert queue.find().tasks == []


@ON_SQLITE
def test_what_pydantic_found_is_said_in_one_line_without_the_values(queue: Queue) -> None:
    with pytest.raises(BadPayload) as refused:
        queue.add(posts, {"text": "", "at": "s3cr3t", "tags": ["a", 5]})
    assert str(refused.value) == (
        "payload is not a valid Post: text: String should have at least 1 character; "
        "at: Input should be a valid datetime or date, input is too short; tags.1: Input should be a valid string"
    )
    with pytest.raises(BadPayload) as refused:
        queue.add(posts, "words")
    assert str(refused.value) == "payload is not a valid Post: Input should be an object"


@ON_SQLITE
def test_an_extra_key_is_left_to_pydantic(queue: Queue, recwarn: pytest.WarningsRecorder) -> None:
    queue.add(posts, {"text": "a", "at": "2026-01-05T12:00:00Z", "txet": "b"})
    assert not recwarn.list


def test_the_schema_is_published_for_adding_by_name(queue: Queue) -> None:
    queue.publish(posts)
    other = Queue(queue.store)
    plan = plan_of(other, "posts")
    assert plan.required == ("text", "at")
    assert plan.payload_schema is not None
    assert plan.payload_schema["properties"]["text"]["minLength"] == 1
    with pytest.raises(BadPayload, match="'text'"):
        other.add("posts", {"at": "2026-01-05T12:00:00Z"})
