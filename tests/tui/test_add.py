"""The form that adds a task."""

from typing import Any

import msgspec
import pytest
from textual.widgets import Input

from onerow.core.errors import BadInput
from onerow.engine.queue.queue import Queue
from onerow.pipelines.pipeline import Pipeline
from onerow.tui.payload_fields import first_text, form_fields, hint_of, payload_of
from tests.tui.conftest import opened, run


class Clip(msgspec.Struct):
    topic: str
    seconds: int = 30
    loud: bool = False


def clips() -> Pipeline:
    pipeline = Pipeline("clips", title="{topic}")

    @pipeline.phase
    def script(job: Clip) -> str:
        return job.topic

    return pipeline


def test_the_form_has_the_fields_of_the_payloads_type() -> None:
    fields = form_fields(clips().plan)
    assert [(each.name, each.type, each.required, first_text(each)) for each in fields] == [
        ("topic", "string", True, ""),
        ("seconds", "integer", False, "30"),
        ("loud", "boolean", False, "false"),
    ]
    assert [hint_of(each) for each in fields] == ["string", "integer", "boolean"]


@pytest.mark.parametrize(
    "typed,payload",
    [
        ({"topic": "조수"}, {"topic": "조수", "seconds": 30, "loud": False}),
        ({"topic": "7", "seconds": "5", "loud": "true"}, {"topic": "7", "seconds": 5, "loud": True}),
    ],
)
def test_what_is_typed_becomes_the_payload(typed: dict[str, str], payload: Any) -> None:
    plan = clips().plan
    assert payload_of(plan, form_fields(plan), typed) == payload


@pytest.mark.parametrize(
    "typed,field",
    [
        ({}, "topic"),
        ({"topic": "x", "seconds": "many"}, "seconds"),
        ({"topic": "x", "seconds": "1.5"}, "seconds"),
        ({"topic": "x", "loud": "1"}, "loud"),
    ],
)
def test_a_wrong_field_is_named(typed: dict[str, str], field: str) -> None:
    plan = clips().plan
    with pytest.raises(BadInput) as raised:
        payload_of(plan, form_fields(plan), typed)
    assert raised.value.field == field


def test_a_wrong_value_is_explained_by_its_type() -> None:
    plan = clips().plan
    for name, text, said in (("seconds", "abc", "a whole number"), ("loud", "maybe", "true or false")):
        with pytest.raises(BadInput, match=f"^{name} must be {said}, not '{text}'"):
            payload_of(plan, form_fields(plan), {"topic": "tides", name: text})


def test_the_form_checks_as_the_user_types_adds_and_returns(queue: Queue) -> None:
    queue.publish(clips())

    async def test() -> None:
        async with opened(queue) as session:
            await session.press("n")
            await session.sees("Add a task", "topic: ")
            await session.type("Tides")
            await session.until(lambda: "topic: " not in session.text)
            await session.press("ctrl+s")
            await session.sees("added ")
            (task,) = queue.find("pipeline:clips").tasks
            assert (task.title, task.payload) == ("Tides", {"topic": "Tides", "seconds": 30, "loud": False})
            assert not session.monitor.screen.is_modal

    run(test)


def test_a_form_with_a_problem_adds_nothing_and_names_it(queue: Queue) -> None:
    queue.publish(clips())

    async def test() -> None:
        async with opened(queue) as session:
            await session.press("n")
            await session.type("x")
            session.monitor.screen.query_one("#term-run_at", Input).value = "soon"
            await session.sees("soon")
            await session.press("ctrl+s")
            assert session.monitor.screen.is_modal
            await session.press("escape")
            assert queue.find("pipeline:clips").tasks == []

    run(test)
