"""Labels of a pipeline and the form of its payload, read from the published definition without its code."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, Field

from onerow import BadInput, Labels, Pipeline, PipelineError, Tab, UnknownName
from onerow.core.plan import PhasePlan, Plan
from onerow.engine.control import definitions
from onerow.engine.control.definitions import PLAN, fingerprint, load_plans, publish
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.ports import Note
from tests.samples import a_task

LABELS = Labels(
    statuses={"processing": "transcribing", "parked": "기다림"},
    tabs=[Tab("Zu prüfen", "status:failed error:limit"), Tab("All", "")],  # type: ignore[arg-type]
    columns=["title", "payload.url", "status"],  # type: ignore[arg-type]
)


def transcripts(labels: Labels | None = None, **options: Any) -> Pipeline:
    pipeline = Pipeline("transcripts", labels=labels, **options)

    @pipeline.phase
    def transcribe(job: Any) -> None: ...

    return pipeline


def by_name(queue: Queue) -> Views:
    """Views of a program without the pipeline's code."""
    return Views(Queue(queue.store))


# ── labels ──


def test_labels_are_published_and_read_without_the_code(queue: Queue) -> None:
    definitions.publish(queue.store, [transcripts(LABELS).plan])
    assert by_name(queue).labels("transcripts") == LABELS
    assert [tab.name for tab in by_name(queue).labels("transcripts").tabs] == ["Zu prüfen", "All"], "in their order"
    assert by_name(queue).labels("nothing") == Labels()


def test_a_definition_without_labels_is_stored_and_fingerprinted_as_before(queue: Queue) -> None:
    plan = transcripts().plan
    definitions.publish(queue.store, [plan])
    assert "labels" not in queue.store.notes(PLAN)[0].body
    assert b"labels" not in msgspec.json.encode(plan)
    assert by_name(queue).labels("transcripts") == Labels()
    assert fingerprint(Plan(name="p", phases=(PhasePlan(name="a"),))) == "499646fdfc6161be"


def test_old_and_new_workers_do_not_replace_each_others_definition(queue: Queue) -> None:
    old, new = transcripts().plan, transcripts(LABELS).plan
    assert publish(queue.store, [old]) == ["transcripts"]
    assert publish(queue.store, [new]) == ["transcripts"]
    version = queue.store.notes(PLAN)[0].version
    for _ in range(2):
        assert publish(queue.store, [old]) == []
        assert publish(queue.store, [new]) == []
    assert queue.store.notes(PLAN)[0].version == version
    assert load_plans(queue.store)["transcripts"].labels == LABELS


def test_labels_of_a_newer_version_are_read_as_far_as_they_are_known(queue: Queue) -> None:
    body = {"name": "p", "phases": [{"name": "a"}], "labels": {"statuses": {"failed": "kaputt"}, "colours": {}}}
    queue.store.write_notes([Note(PLAN, "p", body)])
    assert by_name(queue).labels("p").statuses == {"failed": "kaputt"}


@pytest.mark.parametrize(
    "labels, said",
    [
        ({"statuses": {"done": "ready"}}, "no status 'done'"),
        ({"statuses": {"failed": ""}}, "printable"),
        ({"statuses": {"failed": "a\x1b[31m"}}, "printable"),
        ({"tabs": [Tab("A", "status:nope")]}, "can't be read"),
        ({"tabs": [Tab("A", ""), Tab("A", "")]}, "same name"),
        ({"tabs": ["A"]}, "Tab(name, query)"),
        ({"columns": ["payload"]}, "no column"),
        ({"columns": ["titel"]}, "no column"),
        ({"columns": "title"}, "takes a list"),
    ],
)
def test_bad_labels_are_refused_when_the_pipeline_is_built(labels: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError) as raised:
        transcripts(Labels(**labels))
    assert said in str(raised.value)


def test_a_table_has_the_chosen_columns_masked(queue: Queue) -> None:
    queue.store.insert(
        [
            a_task(
                "a",
                title="Tides",
                payload={"url": "https://example.org/1", "token": "abcdefgh"},
                results_json='{"s":[7]}',
            )
        ]
    )
    table = Views(queue).table("", ["task_id", "payload.url", "payload.token", "results.s.0", "payload.none", "status"])
    assert (
        table.cells == [["a", "https://example.org/1", "abcdefgh", "7", None, "waiting"]] or table.cells[0][2] == "***"
    )
    assert [row.task_id for row in table.page.tasks] == ["a"]
    with pytest.raises(BadInput):
        Views(queue).table("", ["secret"])


# ── forms ──


class Size(msgspec.Struct):
    width: int
    height: int = 1080


class Job(msgspec.Struct):
    topic: Annotated[str, msgspec.Meta(min_length=1, description="what it is about")]
    quality: Literal["low", "high"] = "low"
    size: Size | None = None
    tags: list[str] = []
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    due: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


@dataclass
class Post:
    text: str
    likes: int = 0


class Clip(BaseModel):
    url: str = Field(min_length=3, description="where it is")
    speed: float | None = None


def test_the_form_of_a_struct(queue: Queue) -> None:
    definitions.publish(queue.store, [transcripts(payload=Job).plan])
    form = by_name(queue).payload_form("transcripts")
    assert form.typed
    fields = {field.name: field for field in form.fields}
    assert [(name, field.type, field.required) for name, field in fields.items()] == [
        ("topic", "string", True),
        ("quality", "string", False),
        ("size", "object", False),
        ("tags", "array", False),
        ("share", "number", False),
        ("due", "string", False),
    ]
    assert (fields["topic"].description, fields["topic"].bounds) == ("what it is about", {"minLength": 1})
    assert (fields["quality"].enum, fields["quality"].default) == (["high", "low"], "low")
    assert fields["size"].nullable
    assert [field.name for field in fields["size"].fields] == ["width", "height"]
    assert (fields["tags"].item_type, fields["due"].format, fields["due"].nullable) == ("string", "date-time", True)


@pytest.mark.parametrize("declared, names", [(Post, ["text", "likes"]), (Clip, ["url", "speed"])])
def test_the_form_of_a_dataclass_and_of_a_pydantic_model(queue: Queue, declared: Any, names: list[str]) -> None:
    definitions.publish(queue.store, [transcripts(payload=declared).plan])
    assert [field.name for field in by_name(queue).payload_form("transcripts").fields] == names


def test_an_untyped_payload_has_only_the_fields_that_phases_wait_for(queue: Queue) -> None:
    pipeline = Pipeline("posts")
    pipeline.wait_until("when", field="publish_at")

    @pipeline.phase
    def post(job: Any) -> None: ...

    definitions.publish(queue.store, [pipeline.plan])
    form = by_name(queue).payload_form("posts")
    assert (form.typed, [(field.name, field.format) for field in form.fields]) == (False, [("publish_at", "date-time")])
    assert by_name(queue).check_payload("posts", {"publish_at": "2026-11-15T00:00:00Z", "x": 1}) == []
    (problem,) = by_name(queue).check_payload("posts", {"publish_at": "soon"})
    assert problem.field == "publish_at"
    with pytest.raises(UnknownName):
        by_name(queue).payload_form("nothing")


@pytest.mark.parametrize(
    "value, found",
    [
        ({"topic": "tides"}, {}),
        ({"topic": "조수", "size": {"width": 4}, "tags": ["a"], "due": "2026-11-15T00:00:00Z"}, {}),
        ({"topic": "a", "size": None, "share": 1}, {}),
        ({}, {"topic": "is required"}),
        ({"topic": ""}, {"topic": "must not be empty"}),
        ({"topic": 4, "share": 2}, {"topic": "must be text", "share": "must be at most 1"}),
        ({"topic": "a", "quality": "medium"}, {"quality": "must be one of high, low"}),
        ({"topic": "a", "tags": ["b", 1]}, {"tags.1": "must be text"}),
        ({"topic": "a", "size": {"width": "wide"}}, {"size.width": "must be a whole number"}),
        ({"topic": "a", "due": "soon"}, {"due": "is no date-time"}),
        ("tides", {"": "must be an object"}),
        ({"topic": "a", "share": True}, {"share": "must be a number"}),
    ],
)
def test_a_payload_is_checked_by_field_with_and_without_the_code(
    queue: Queue, value: Any, found: dict[str, str]
) -> None:
    pipeline = transcripts(payload=Job)
    definitions.publish(queue.store, [pipeline.plan])
    served = Queue(queue.store)
    served.serve(pipeline)
    for views in (by_name(queue), Views(served)):
        assert {problem.field: problem.message for problem in views.check_payload("transcripts", value)} == found
    if not found:
        assert queue.add(pipeline, value).payload == value
    else:
        with pytest.raises(BadInput):
            queue.add(pipeline, value)


def test_what_only_the_code_can_check_is_reported_by_field(queue: Queue) -> None:
    class Even(BaseModel):
        n: int

        def model_post_init(self, context: Any) -> None:
            if self.n % 2:
                raise ValueError("must be even")

    served = Queue(queue.store)
    served.serve(transcripts(payload=Even))
    assert Views(served).check_payload("transcripts", {"n": 2}) == []
    (problem,) = Views(served).check_payload("transcripts", {"n": 3})
    assert "must be even" in problem.message
