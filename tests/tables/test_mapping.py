"""Mappings: what is wrong in one is named, with what to do."""

import tomllib
from typing import Any

import pytest

from onerow.core.errors import BadInput
from onerow.core.table_mapping import from_options, read_mapping, with_types
from onerow.mappings import example, examples

GOOD: dict[str, Any] = {
    "table": "jobs",
    "pipeline": "jobs",
    "columns": {"id": "task_id", "state": "status", "url": "payload.url"},
    "statuses": {"new": "waiting", "busy": "processing", "done": "completed", "bad": "failed", "off": "cancelled"},
}


@pytest.mark.parametrize("name", examples())
def test_every_shipped_mapping_is_valid(name: str) -> None:
    assert read_mapping(tomllib.loads(example(name))).columns


@pytest.mark.parametrize(
    "change, problem, fix",
    [
        ({"statuses": GOOD["statuses"] | {"new": ""}}, "'new' is mapped to 'nothing'", "write new = one of waiting"),
        ({"statuses": GOOD["statuses"] | {"new": "waitin"}}, "not a status", "waiting"),
        ({"statuses": {"new": "waiting"}}, "no word means processing", "[statuses]"),
        ({"columns": {"id": "task_id", "state": "status", "url": "payloads.url"}}, "no field 'payloads.url'", "payload"),
        ({"columns": {"id": "task_id", "state": "status", "url": "user_di"}}, "no field 'user_di'", "user_id"),
        ({"columns": {"id": "task_id", "state": "status", "url": "payload.url:uid"}}, "no type 'uid'", "uuid"),
        ({"columns": {"state": "status"}}, "no column is the task's id", "task_id"),
        ({"columns": {"id": "task_id"}}, "the status must come from one column", "status_when"),
        ({"columns": {"id": "task_id", "state": "status", "a": "title", "b": "title"}}, "both title", "metadata.X"),
        ({"columns": {"id": "task_id", "state": "status", "a": "payload", "b": "payload.x"}}, "the whole payload", "members"),
        ({"columns": GOOD["columns"] | {"p": "payload.post.id"}}, "payload.post.id is a member of a member", 'p = "payload.post:json"'),
        ({"columns": GOOD["columns"] | {"p": "metadata.a.b.c:json"}}, "member of a member", 'p = "metadata.a:json"'),
        ({"columns": GOOD["columns"] | {"p": "results.run.post.id"}}, "member of a member", 'p = "results.run.post:json"'),
        ({"table": "a.b.jobs"}, "can't name a view", "SCHEMA.NAME"),
        ({"unique": ["post"]}, "unique names 'post'", ""),
        ({"indexes": [["stat"]]}, "indexes names 'stat'", "state"),
        ({"unique_for": "7d"}, "unique_for needs unique", "unique"),
        ({"taken": "maybe"}, "taken is 'maybe'", "ignore or error"),
        ({"coloms": {}}, "unknown key 'coloms'", "columns"),
        ({"table": "my table"}, "can't name a view", "letters"),
        ({"shown": {"cancelled": "gone"}}, "'gone' for cancelled", ""),
        ({"columns": GOOD["columns"] | {"n": {"field": "title", "plus": 1}}}, "plus and negate are for numbers", ""),
    ],
)  # fmt: skip
def test_a_wrong_mapping_is_refused_with_what_to_do(change: dict[str, Any], problem: str, fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_mapping(GOOD | change)
    assert problem in str(caught.value)
    assert fix in caught.value.fix


def test_options_and_a_file_give_the_same_mapping() -> None:
    columns = ",".join(f"{name}={field}" for name, field in GOOD["columns"].items())
    statuses = ",".join(f"{word}={status}" for word, status in GOOD["statuses"].items())
    assert read_mapping(from_options("jobs", "jobs", columns, statuses, "")) == read_mapping(GOOD)
    with pytest.raises(BadInput, match="'id' is not NAME=VALUE"):
        from_options("jobs", "jobs", "id", "", "")


@pytest.mark.parametrize(
    "columns, statuses, named",
    [("id=task_id,id=payload.x", "", "--columns: 'id'"), ("id=task_id", "new=waiting,new=failed", "--statuses: 'new'")],
)
def test_a_name_that_is_given_twice_is_refused(columns: str, statuses: str, named: str) -> None:
    with pytest.raises(BadInput, match=f"{named} is given twice"):
        from_options("jobs", "jobs", columns, statuses, "")


def test_a_step_may_have_a_dot_in_its_name() -> None:
    mapping = read_mapping(GOOD | {"columns": GOOD["columns"] | {"done": "steps.run.part.1"}})
    assert mapping.columns[-1].path == ("steps", "run", "part.1")


def test_a_word_with_a_phase_is_shown_before_the_general_one() -> None:
    mapping = read_mapping(GOOD | {"statuses": GOOD["statuses"] | {"scripting": "processing/script"}})
    assert mapping.words[0] == ("processing", "script", "scripting")
    assert mapping.meaning("scripting") == ("processing", "script")


def test_types_of_the_table_fill_in_what_the_mapping_leaves_out() -> None:
    mapping = with_types(read_mapping(GOOD), {"id": "bigint", "url": "text"})
    assert [column.kind for column in mapping.columns] == ["bigint", "text", "text"]
