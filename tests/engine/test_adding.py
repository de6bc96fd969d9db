"""Adding tasks: the row contains what the caller passed."""

import asyncio
import linecache
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import msgspec
import pytest

from onerow import Addition, BadInput, BadPayload, Filter, Pipeline, Queue, Status, TaskAdded, UnknownName
from onerow.core.times import to_millis
from onerow.pipelines import decoding
from tests.engine.kit import ON_SQLITE

posts = Pipeline("posts", title="{topic} by {author}")


@posts.phase(retry=2)
def tag(job: object) -> None: ...


def test_an_added_task_waits_at_the_first_phase(queue: Queue) -> None:
    task = queue.add(posts, {"topic": "tides"})
    assert queue.get(task.task_id) == task
    assert (task.status, task.pipeline, task.phase, task.attempt, task.version) == ("waiting", "posts", "tag", 0, 1)
    assert (task.user_id, task.priority, task.limit_key, task.unique_key, task.metadata) == ("", 0, "", None, {})
    assert task.run_at <= queue.store.now()


def test_every_option_is_stored_in_the_row(queue: Queue) -> None:
    moment = to_millis(datetime.now(UTC) + timedelta(hours=1))
    given = queue.add(
        posts,
        {"n": [1, 2.5, None, "조수 🌊"]},
        task_id="post-1",
        user_id="u1",
        title="a title",
        run_at=moment,
        priority=-7,
        unique="key",
        unique_for="7d",
        limit_key="group",
        max_retries=9,
        metadata={"source": "test"},
    )
    task = queue.get("post-1")
    assert task == given
    assert task.payload == {"n": [1, 2.5, None, "조수 🌊"]}
    assert (task.user_id, task.title, task.priority, task.limit_key) == ("u1", "a title", -7, "group")
    assert (task.run_at, task.scheduled_time) == (moment, moment)
    assert (task.unique_key, task.unique_for, task.held_key) == ("key", "7d", "key")
    assert (task.max_retries, task.own_retries, task.metadata) == (9, True, {"source": "test"})


def test_max_retries_defaults_to_the_phases_value(queue: Queue) -> None:
    task = queue.add(posts)
    assert (task.max_retries, task.own_retries) == (2, False)


def test_a_title_is_built_from_payload_fields(queue: Queue) -> None:
    assert queue.add(posts, {"topic": "tides", "author": "Kim"}).title == "tides by Kim"
    assert queue.add(posts, {"topic": "tides"}).title == "tides by "
    assert queue.add(posts, "no fields").title == " by "
    assert queue.add(posts, {"topic": "tides"}, title="my own").title == "my own"


def test_a_time_may_be_text_with_an_offset_and_is_stored_in_utc(queue: Queue) -> None:
    task = queue.add(posts, run_at="2030-01-01T09:00:00+09:00")
    assert queue.get(task.task_id).run_at == datetime(2030, 1, 1, tzinfo=UTC)


def test_a_time_may_be_now_or_in_a_while(queue: Queue) -> None:
    soon = queue.add(posts, run_at="+10m")
    assert queue.get(soon.task_id).run_at == soon.scheduled_time == soon.created_at + timedelta(minutes=10)
    (now,) = queue.add_many(posts, [Addition(1, run_at="now")], run_at="+1h")
    assert queue.get(now.task_id).run_at == now.created_at


def test_adding_a_taken_task_id_returns_the_existing_task(queue: Queue) -> None:
    first = queue.add(posts, {"n": 1}, task_id="post-1")
    assert queue.add(posts, {"n": 2}, task_id="post-1") == first
    assert queue.get("post-1").payload == {"n": 1}


def test_a_task_id_of_another_user_is_refused_without_details(queue: Queue) -> None:
    queue.add(posts, {"secret": "s3cr3t"}, task_id="post-1", user_id="ann")
    for other in (queue, queue.for_user("bob")):
        with pytest.raises(BadInput, match="task_id") as refused:
            other.add(posts, {"n": 2}, task_id="post-1", user_id="bob")
        assert refused.value.field == "task_id"
        assert "s3cr3t" not in str(refused.value)
        assert "ann" not in str(refused.value)


def test_add_many_stores_all_tasks_in_order(queue: Queue) -> None:
    tasks = queue.add_many(posts, ({"n": n} for n in range(1000)), user_id="u1", priority=3)
    assert [task.payload["n"] for task in tasks] == list(range(1000))
    assert sorted(task.task_id for task in tasks) == [task.task_id for task in tasks]
    assert {(task.user_id, task.priority) for task in tasks} == {("u1", 3)}
    assert [tally.count for tally in queue.count()] == [1000]


def test_add_many_takes_items_with_terms_of_their_own(queue: Queue) -> None:
    plain, special = queue.add_many(posts, [{"n": 1}, Addition({"n": 2}, task_id="two", priority=5, unique="k")])
    assert plain.priority == 0
    assert (special.task_id, special.priority, special.unique_key) == ("two", 5, "k")


def test_add_many_of_no_items_adds_nothing(queue: Queue) -> None:
    assert queue.add_many(posts, []) == []
    assert queue.count() == []


def test_add_many_is_all_or_none(queue: Queue) -> None:
    with pytest.raises(BadPayload, match="item 2") as refused:
        queue.add_many(posts, [1, 2, float("nan"), 4])
    assert refused.value.field == "payload"
    assert queue.count() == []


def test_add_many_with_an_id_of_another_user_adds_none(queue: Queue) -> None:
    queue.add(posts, task_id="taken", user_id="ann")
    with pytest.raises(BadInput, match="task_id"):
        queue.for_user("bob").add_many(posts, [Addition(1), Addition(2, task_id="taken"), Addition(3)])
    assert queue.for_user("bob").count() == []


def test_add_many_refuses_terms_that_cannot_be_shared(queue: Queue) -> None:
    with pytest.raises(BadInput, match="task_id"):
        queue.add_many(posts, [1, 2], task_id="both")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"add_many\(\) has no keyword 'prioritty'; did you mean 'priority'"):
        queue.add_many(posts, [1, 2], prioritty=1)  # type: ignore[call-overload]
    assert queue.count() == []


@dataclass
class Post:
    topic: str
    likes: int = 0


class Clip(msgspec.Struct):
    path: str
    length: float = 0.0


@pytest.mark.parametrize("declared", [Post, Clip])
def test_a_declared_payload_is_checked_when_it_is_added(queue: Queue, declared: type) -> None:
    typed = Pipeline("typed", payload=declared)
    typed.phase(name="run")(tag)
    good = declared("x")
    assert queue.get(queue.add(typed, good).task_id).payload == msgspec.to_builtins(good)
    name = next(iter(msgspec.to_builtins(good)))
    assert queue.add(typed, {name: "plain"}).payload == {
        name: "plain"
    }  # plain values of the right shape are accepted too
    for wrong in ({name: 5}, {}, "text", None):
        with pytest.raises(BadPayload) as refused:
            queue.add(typed, wrong)
        assert refused.value.field == "payload"
        assert declared.__name__ in str(refused.value)
    assert [tally.count for tally in queue.count()] == [2]


class Song(TypedDict):
    title: str


ADDS: dict[str, Callable[[Queue, Pipeline, Any], Any]] = {
    "add": lambda queue, pipeline, payload: queue.add(pipeline, payload),
    "add_new": lambda queue, pipeline, payload: queue.add_new(pipeline, payload),
    "add_many": lambda queue, pipeline, payload: queue.add_many(pipeline, [Addition(payload), payload]),
    "of one user": lambda queue, pipeline, payload: queue.for_user("ann").add(pipeline, payload),
}
ADDS_ASYNC: dict[str, Callable[[Queue, Pipeline, Any], Coroutine[Any, Any, Any]]] = {
    "add_async": lambda queue, pipeline, payload: queue.add_async(pipeline, payload),
    "add_new_async": lambda queue, pipeline, payload: queue.add_new_async(pipeline, payload),
    "add_many_async": lambda queue, pipeline, payload: queue.add_many_async(pipeline, [payload, payload]),
}


def warned(given: pytest.WarningsRecorder) -> list[tuple[str, str, str]]:
    """Return the category, text and line of code of each warning."""
    return [
        (each.category.__name__, str(each.message), linecache.getline(each.filename, each.lineno).strip())
        for each in given.list
    ]


@ON_SQLITE
@pytest.mark.parametrize("name", ADDS)
def test_a_key_that_the_payload_s_type_lacks_warns_once_and_names_the_line_that_adds(
    queue: Queue, name: str, recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_reported", set())
    typed = Pipeline("typed", payload=Post)
    typed.phase(name="run")(tag)
    for _ in range(2):
        ADDS[name](queue, typed, {"topic": "x", "lieks": 2})
    said = "the payload has the key 'lieks', which Post does not have; did you mean 'likes'?"
    (warning,) = warned(recwarn)
    assert warning[:2] == ("UserWarning", said)
    assert warning[2].startswith(f'"{name}": lambda')
    assert next(task.payload["lieks"] for task in queue.find().tasks) == 2, "it is stored: a newer version may know it"


@ON_SQLITE
@pytest.mark.parametrize("name", ADDS_ASYNC)
def test_the_warning_of_an_async_add_names_the_line_that_awaits(
    queue: Queue, name: str, recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_reported", set())
    typed = Pipeline("typed", payload=Clip)
    typed.phase(name="run")(tag)

    async def add() -> None:
        await ADDS_ASYNC[name](queue, typed, {"path": "x", "lenght": 2})

    asyncio.run(add())
    said = "the payload has the key 'lenght', which Clip does not have; did you mean 'length'?"
    assert warned(recwarn) == [
        ("UserWarning", said, 'await ADDS_ASYNC[name](queue, typed, {"path": "x", "lenght": 2})')
    ]


@ON_SQLITE
@pytest.mark.parametrize("declared", [Post, Clip, Song])
def test_each_key_that_no_field_takes_is_reported(
    queue: Queue, declared: Any, recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_reported", set())
    typed = Pipeline("typed", payload=declared)
    typed.phase(name="run")(tag)
    first = next(iter(declared.__annotations__))
    queue.add(typed, {first: "x"})
    assert not recwarn.list
    for _ in range(3):
        queue.add_many(typed, [{first: "x", f"other{n}": 1} for n in range(150)])
    assert len(recwarn.list) == 100, "keys may come from anywhere: no more than these"


@ON_SQLITE
def test_a_payload_without_fields_of_its_own_never_warns(queue: Queue, recwarn: pytest.WarningsRecorder) -> None:
    for declared in (dict, Any, None):
        typed = Pipeline("typed", payload=declared)
        typed.phase(name="run")(tag)
        queue.add(typed, {"topic": "x", "lieks": 2})
    assert not recwarn.list


def test_the_annotation_of_the_first_phase_declares_the_payload(queue: Queue) -> None:
    typed = Pipeline("typed")

    @typed.phase
    def run(job: Post) -> None: ...

    with pytest.raises(BadPayload, match=r"topic|Post"):
        queue.add(typed, {"topics": "x"})


def test_a_pipeline_can_be_added_to_by_name_once_it_is_published(queue: Queue) -> None:
    with pytest.raises(UnknownName, match="posts") as refused:
        queue.add("posts", {"topic": "x"})
    assert refused.value.field == "pipeline"
    queue.publish(posts)
    elsewhere = Queue(queue.store)  # without the pipeline's code
    task = elsewhere.add("posts", {"topic": "x"})
    assert (task.pipeline, task.phase, task.title, task.max_retries) == ("posts", "tag", "x by ", 2)


def test_an_event_is_sent_after_a_task_was_added(queue: Queue) -> None:
    heard: list[str] = []

    def note(event: TaskAdded) -> None:
        assert queue.get(event.task.task_id).status is Status.WAITING
        heard.append(event.task.task_id)

    queue.on(TaskAdded)(note)

    first = queue.add(posts, task_id="one")
    queue.add(posts, task_id="one")  # already exists
    assert heard == [first.task_id]


def test_a_hook_that_raises_does_not_affect_the_add(queue: Queue) -> None:
    def hook(event: TaskAdded) -> None:
        raise ZeroDivisionError

    queue.on(TaskAdded, hook)
    queue.add(posts)
    assert len(queue.find(Filter()).tasks) == 1


def test_a_delay_counts_from_the_creation_of_the_task(queue: Queue) -> None:
    ten_minutes = timedelta(minutes=10)
    tasks = [
        queue.add(posts, delay="10m"),
        *queue.add_many(posts, [{"n": 1}, {"n": 2}], delay=600),
        *queue.add_many(posts, [Addition({"n": 3}, delay=ten_minutes)]),
    ]
    for task in tasks:
        assert queue.get(task.task_id).run_at == task.scheduled_time == task.created_at + ten_minutes


@pytest.mark.parametrize(
    "terms, hint",
    [
        ({"delay": "10m", "run_at": datetime.now(UTC)}, "give one of them"),
        ({"delay": "soon"}, "can't read the duration 'soon'"),
        ({"delay": -1}, "between 0 seconds"),
    ],
)
def test_an_invalid_delay_is_refused(queue: Queue, terms: dict[str, Any], hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        queue.add(posts, **terms)
    with pytest.raises(BadInput, match=hint):
        queue.add_many(posts, [1, 2], **terms)
    assert not queue.find().tasks
