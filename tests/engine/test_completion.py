"""Completion of queries: keys, names and values; bounded, and a completed query can be parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow.core.plan import PhasePlan, Plan
from onerow.core.query import KEYS, parse_query
from onerow.engine.control import definitions
from onerow.engine.control.definitions import WORKER
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.engine.views.completion import MOST_COMPLETIONS, Names, Sample, complete
from onerow.ports import Note
from tests.samples import NOW, a_task

PLANS = {
    "videos": Plan(
        name="videos",
        phases=(PhasePlan(name="script"), PhasePlan(name="image", kind="wait_for", signal="images.ready")),
        payload_schema={"type": "object", "properties": {"topic": {"type": "string"}}},
    ),
    "posts": Plan(name="posts", phases=(PhasePlan(name="post"),)),
}
RECENT = [
    Sample("ann", "chan-7", "", {"topic": "ocean tides", "size": {"w": 4}}, {"order": "A 1"}),
    Sample("bob", "chan-8", "go", {"topic": "***", "list": [1]}, {}),
]
NAMES = Names(lambda: PLANS, lambda: ["gpu-1", "gpu-2"], lambda: RECENT)


def completed(text: str) -> list[str]:
    """Return the queries that the completions at '|' make of a query."""
    before, _, after = text.partition("|")
    found = complete(before + after, len(before), NAMES)
    whole = before + after
    return [whole[: found.start] + item.text + whole[found.end :] for item in found.items]


@pytest.mark.parametrize(
    "text, results",
    [
        ("st|", ["status:"]),
        ("status:fa|", ["status:failed"]),
        ("status:failed,wa|", ["status:failed,waiting"]),
        ("-status:comp|", ["-status:completed"]),
        ("(phase:im| OR a)", ["(phase:image OR a)"]),
        ("pipeline:|", ["pipeline:videos", "pipeline:posts"]),
        ("phase:|", ["phase:script", "phase:image", "phase:post"]),
        ("pipeline:posts phase:|", ["pipeline:posts phase:post"]),
        ("worker:gpu|", ["worker:gpu-1", "worker:gpu-2"]),
        ("error:ti|", ["error:timeout"]),
        ("is:|", ["is:due", "is:cancelling"]),
        ("sort:la|", ["sort:latest"]),
        ("user:|", ["user:ann", "user:bob"]),
        ("key:8|", ["key:chan-8"]),
        ("signal:|", ["signal:images.ready", "signal:go"]),
        ("payload.|", ["payload.topic:", "payload.list:", "payload.size.w:"]),
        ("payload.topic:|", ['payload.topic:"ocean tides"']),
        ('payload.topic:"ocean t|"', ['payload.topic:"ocean tides"']),
        ("metadata.order:|", ['metadata.order:"A 1"']),
        ("status:failed o|", ["status:failed OR"]),
        ("id:|", []),
        ("nothing:|", []),
    ],
)
def test_completions_at_the_cursor(text: str, results: list[str]) -> None:
    if text == "status:failed o|":
        assert results[0] in completed(text)
    else:
        assert completed(text) == results


def test_without_a_word_every_key_is_offered() -> None:
    found = complete("", 0, NAMES)
    assert [item.text for item in found.items] == [f"{key}:" for key in KEYS if not key.endswith("…")]
    assert all(item.hint for item in found.items)


@given(
    st.text(max_size=30) | st.from_regex(r"(-?(status|phase|payload\.topic|user|is):?\"? ?){0,4}"), st.integers(-5, 40)
)
def test_any_text_can_be_completed_and_completions_are_bounded(text: str, cursor: int) -> None:
    found = complete(text, cursor, NAMES)
    assert 0 <= found.start <= found.end <= len(text)
    assert len(found.items) <= MOST_COMPLETIONS


@pytest.mark.parametrize("key", [key for key in KEYS if not key.endswith("…")])
def test_a_completed_value_can_be_parsed(key: str) -> None:
    for query in completed(f"{key}:|"):
        parse_query(query, NOW)


def test_names_come_from_the_store_and_only_from_the_users_own_tasks(queue: Queue) -> None:
    definitions.publish(queue.store, PLANS.values())
    queue.store.write_notes([Note(WORKER, "gpu-1", {"phases": []})])
    queue.store.insert(
        [a_task("a", user_id="u1", payload={"topic": "tides"}), a_task("b", user_id="u2", limit_key="k2")]
    )
    views = Views(queue)
    assert [item.text for item in views.query_completions("worker:").items] == ["gpu-1"]
    assert {item.text for item in views.query_completions("user:").items} == {"u1", "u2"}
    assert [item.text for item in views.query_completions("payload.topic:", 14).items] == ["tides"]
    scoped = Views(queue.for_user("u1"))
    assert [item.text for item in scoped.query_completions("user:").items] == ["u1"]
    assert scoped.query_completions("key:").items == []
