"""Command phases: validated when they are built; placeholders are replaced when they run."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow import Pipeline, PipelineError
from onerow.core.sizes import parse_size, spell_size
from onerow.pipelines import arguments
from onerow.pipelines.arguments import NoValue
from onerow.pipelines.command import Command


def filled(*argv: str, payload: Any = None, **known: Any) -> list[str]:
    return arguments.fill(arguments.parse(argv, "here"), known, payload)


def command_of(pipeline: Pipeline, name: str) -> Command:
    found = pipeline.handlers[name].function
    assert isinstance(found, Command)
    return found


def test_placeholders_take_values_of_the_payload_and_of_earlier_phases() -> None:
    payload = {"url": "a b;c", "engine": "fast", "size": {"width": 640}, "ratio": 1.5, "on": True}
    argv = ["main.py", "{url}", "--engine", "{engine}", "-w={size.width}x", "{ratio}", "{on}", "{cut.file}", "{{}}"]
    assert filled(*argv, payload=payload, cut={"file": "/a"}) == [
        "main.py", "a b;c", "--engine", "fast", "-w=640x", "1.5", "true", "/a", "{}",
    ]  # fmt: skip


def test_a_flag_is_present_if_its_value_is_true() -> None:
    argv = ["main.py", "{force?--force}", "{lang?--lang}", "{lang?}", "{files*}"]
    assert filled(*argv, payload={"force": False, "files": []}) == ["main.py"]
    given = {"force": 1, "lang": "ko", "files": ["a", "b c"]}
    assert filled(*argv, payload=given) == ["main.py", "--force", "--lang", "ko", "a", "b c"]


def test_the_whole_payload_and_values_other_than_text_are_passed_as_json() -> None:
    assert filled("p", "{}", payload="text") == ["p", "text"]
    assert filled("p", "{}", payload={"a": [1, None]}) == ["p", '{"a":[1,null]}']


@given(st.text(min_size=1), st.lists(st.text()))
def test_a_value_that_looks_like_an_option_is_rejected(value: str, many: list[str]) -> None:
    try:
        argv = filled("p", "{a}", "--to", "{a}", "x{a}", "{none?}{a}", "{many*}", payload={"a": value, "many": many})
    except NoValue:
        assert value.startswith("-") or "\0" in value or any(each.startswith("-") or "\0" in each for each in many)
    else:
        assert not any(each.startswith("-") for each in (argv[1], argv[3], *argv[5:]))


def test_any_value_is_allowed_after_two_dashes_or_an_option() -> None:
    assert filled("rm", "-f", "--", "{name}", payload={"name": "-rf"}) == ["rm", "-f", "--", "-rf"]
    assert filled("p", "--name={name}", payload={"name": "-rf"}) == ["p", "--name=-rf"]
    with pytest.raises(NoValue, match="taken for an option"):
        filled("p", "{n}", payload={"n": -5})


@pytest.mark.parametrize("payload", [{}, {"url": None}, None, [], "text"])
def test_a_missing_value_is_named(payload: Any) -> None:
    with pytest.raises(NoValue, match=r"no value for \{url\}"):
        filled("p", "{url}", payload=payload)


@pytest.mark.parametrize(
    "argv, why",
    [
        ("ffmpeg -i {source}", "list of arguments"),
        ([], "list of arguments"),
        (["{program}"], "program itself"),
        (["p", "{a"], "double it"),
        (["p", "{a b}"], "can't read"),
        (["p", "x{files*}"], "of its own"),
        (["p", 3], "are text"),
        (["p", "a\0b"], "are text"),
        (["p", "{ctx.secret}"], "ctx.task_id"),
        (["sh", "-c", "rm {name}"], "could run anything"),
        (["/usr/bin/python3", "-c", "print('{name}')"], "could run anything"),
        (["bash", "-ec", "{script}"], "could run anything"),
    ],
)
def test_invalid_arguments_are_an_error_when_the_pipeline_is_built(argv: Any, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        Pipeline("films").command("cut", argv)


def test_values_are_allowed_as_arguments_of_a_script() -> None:
    Pipeline("films").command("cut", ["sh", "-c", 'echo "$1"', "sh", "{name}"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"env": "PATH"},
        {"env": ["A=B"]},
        {"set_env": {"A B": "c"}},
        {"exits": {3: "odd"}},
        {"exits": {300: "network"}},
        {"exits": {"3": "network"}},
        {"progress": "("},
        {"progress": r"\d+"},
        {"result": "first_line"},
        {"stdin": "results"},
        {"memory_limit": "much"},
        {"timeout": 0},
    ],
)
def test_invalid_options_are_an_error_when_the_pipeline_is_built(wrong: dict[str, Any]) -> None:
    with pytest.raises(PipelineError):
        Pipeline("films").command("cut", ["p"], **wrong)


def test_a_placeholder_must_name_a_field_of_a_typed_payload_or_an_earlier_phase() -> None:
    class Film(msgspec.Struct):
        url: str

    films = Pipeline("films", payload=Film)
    films.command("fetch", ["p", "{url}"])
    films.command("cut", ["p", "{fetch.file}", "{urll}"])
    with pytest.raises(PipelineError, match=r"urll.*neither"):
        films.plan  # noqa: B018
    late = Pipeline("films")
    late.command("fetch", ["p", "{cut}"])
    late.command("cut", ["p"])
    with pytest.raises(PipelineError, match="comes later"):
        late.plan  # noqa: B018


def test_exit_codes_follow_sysexits_and_shells_unless_the_user_overrides_them() -> None:
    films = Pipeline("films")
    films.command("cut", ["p"], exits={1: "ok", 75: "limit"})
    cut = command_of(films, "cut")
    assert [cut.class_of(code) for code in (1, 75, 77, 78, 137, 152, 3)] == [
        "ok", "limit", "auth", "permanent", "resource", "resource", "unknown",
    ]  # fmt: skip


def test_a_command_gets_only_default_and_listed_variables() -> None:
    films = Pipeline("films")
    films.command("cut", ["p"], env=["KEY", "AWS_*"])
    cut = command_of(films, "cut")
    seen = [name for name in ("PATH", "LC_ALL", "KEY", "KEYS", "AWS_REGION", "SECRET") if cut.passes_on(name)]
    assert seen == ["PATH", "LC_ALL", "KEY", "AWS_REGION"]


def test_a_command_is_a_phase_with_code_that_only_a_worker_runs() -> None:
    films = Pipeline("films")
    films.command("cut", [Path("/bin/true")], memory_limit="2GB", progress=re.compile(r"(?P<percent>\d+)%"))
    phase = films.plan.first
    assert (phase.kind, phase.has_code) == ("command", True)
    cut = command_of(films, "cut")
    assert cut.memory_limit == 2_000_000_000
    with pytest.raises(TypeError, match="a worker runs it"):
        cut({})


def test_sizes_are_parsed_in_all_units() -> None:
    assert [parse_size(size) for size in ("512MB", "4 GB", "1.5GiB", "2g", "64k", 10)] == [
        512_000_000, 4_000_000_000, 1_610_612_736, 2 * 2**30, 65_536, 10,
    ]  # fmt: skip
    assert [spell_size(size) for size in (999, 4_000_000_000, 1_500_000)] == ["999 B", "4 GB", "1.5 MB"]
