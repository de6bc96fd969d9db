"""The type that a phase declares for an earlier result must be one that this result can have."""

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, RootModel

from onerow import BadInput, BadPayload, Finish, Item, Jump, Pipeline, PipelineError, Task
from onerow.core import values
from onerow.pipelines.decoding import decoder
from onerow.pipelines.result_types import never_fits
from tests.samples import a_task


@dataclass
class Video:
    url: str
    seconds: float = 1.0


@dataclass
class Longer:
    url: str
    author: str


@dataclass
class Numbered:
    url: int


class Struct(msgspec.Struct):
    url: str


class Omitting(msgspec.Struct, omit_defaults=True):
    url: str = ""


class AsArray(msgspec.Struct, array_like=True):
    url: str


class Tagged(msgspec.Struct, tag=True):
    url: str


class Renamed(msgspec.Struct, rename="upper"):
    url: str


class Row(TypedDict):
    url: str
    size: NotRequired[int]


class Pair(NamedTuple):
    url: str
    size: int


class Model(BaseModel):
    url: str


class Names(RootModel[list[str]]):
    pass


class Colour(Enum):
    RED = "red"


@dataclass
class Tree:
    name: str
    children: list["Tree"] = field(default_factory=list)


EXAMPLES: list[tuple[Any, list[Any]]] = [
    (int, [1]),
    (float, [1.5, 2]),
    (bool, [True]),
    (str, ["x", "2026-11-18T00:00:00Z", "00000000-0000-0000-0000-000000000000", "red", "1.5"]),
    (int | str, [1, "x"]),
    (Optional[int], [1]),  # noqa: UP045
    (list[int], [[1]]),
    (list[str], [["x"], ["x", "y"]]),
    (Sequence[str], [["x"]]),
    (tuple[int, str], [[1, "x"]]),
    (dict[str, int], [{"url": 1}]),
    (dict[str, str], [{"url": "x"}, {"url": "x", "author": "y"}]),
    (dict[str, Any], [{"url": "x"}, {"name": "x"}]),
    (list[Video], [[Video("x")]]),
    (Video, [Video("x")]),
    (Longer, [Longer("x", "y")]),
    (Numbered, [Numbered(3)]),
    (Struct, [Struct("x")]),
    (Omitting, [Omitting("x"), Omitting()]),
    (AsArray, [AsArray("x")]),
    (Tagged, [Tagged("x")]),
    (Renamed, [Renamed("x")]),
    (Row, [{"url": "x"}, {"url": "x", "size": 3}]),
    (Pair, [["x", 3]]),
    (Model, [Model(url="x")]),
    (Names, [Names(["x"])]),
    (Literal["red", "blue"], ["red"]),
    (Tree, [Tree("x", [Tree("y")])]),
    (Annotated[int, msgspec.Meta(ge=0)], [3]),
    (Annotated[str, {"not": "hashable"}], ["x"]),
    (datetime, []),
    (Decimal, []),
    (UUID, []),
    (Colour, []),
    (Any, [1, "x", [], {}]),
    (object, []),
]


def test_no_type_that_can_take_a_result_is_refused() -> None:
    taken = refused = 0
    for (returned, examples), (wanted, _) in product(EXAMPLES, EXAMPLES):
        for example in examples:
            try:
                decoder(wanted, "result")(values.encode(example, "result"))
            except BadPayload:
                continue
            taken += 1
            assert not never_fits(returned, wanted), f"{returned} is refused by {wanted}, which takes {example}"
        refused += never_fits(returned, wanted)
    assert taken > 200
    assert refused > 400


@pytest.mark.parametrize(
    "returned, wanted",
    [
        (Video, int),
        (Video, str),
        (int, Video),
        (str, int),
        (bool, int),
        (int, bool),
        (list[str], list[int]),
        (list[str], dict[str, str]),
        (Video, Longer),
        (Video, Numbered),
        (Row, Numbered),
        (dict[str, int], Longer),
        (Video, dict[str, int]),
        (list[Video], list[Longer]),
        (Video | Jump, int),
        (Video | None, int),
        (int | str, Video),
        (Optional[Video], int | str),  # noqa: UP045
        (AsArray, dict[str, str]),
    ],
)
def test_a_result_that_no_value_can_make_right_is_refused(returned: Any, wanted: Any) -> None:
    assert never_fits(returned, wanted)


@pytest.mark.parametrize(
    "returned, wanted",
    [(Jump, int), (Video | Finish, Video), (None, Video), (None, Any), (typing.NoReturn, int), (int, Model)],
)
def test_what_is_not_certain_is_not_refused(returned: Any, wanted: Any) -> None:
    assert not never_fits(returned, wanted)


def chain(first: Callable[..., Any], second: Callable[..., Any]) -> Pipeline:
    pipeline = Pipeline("films")
    pipeline.phase(name="cut")(first)
    pipeline.phase(name="show")(second)
    return pipeline


def test_the_error_names_both_phases_and_both_types() -> None:
    def cut(film: str) -> Video:
        return Video(film)

    def show(film: str, cut: int) -> None: ...

    with pytest.raises(PipelineError) as found:
        chain(cut, show)
    assert str(found.value).splitlines()[0] == (
        "phase 'show' of pipeline 'films': cut: int can't take the result of phase 'cut', which returns "
        "tests.core.test_result_types.Video"
    )
    assert found.value.fix == "annotate the parameter 'cut' with the type that the phase returns"


def test_async_handlers_and_annotations_as_text_are_checked() -> None:
    async def cut(film: str) -> "Video": ...  # type: ignore[empty-body]

    def show(film: str, *, cut: "int") -> None: ...

    with pytest.raises(PipelineError, match="can't take the result"):
        chain(cut, show)


def test_results_without_a_known_type_are_not_checked() -> None:
    def unannotated(film):  # type: ignore[no-untyped-def]
        return 5

    def unresolved(film: str) -> "Nowhere":  # type: ignore[name-defined] # noqa: F821
        return 5

    def show(film: str, cut: int) -> None: ...

    for first in (unannotated, unresolved):
        assert len(chain(first, show).plan.phases) == 2
    batches = Pipeline("batches")

    @batches.batch("cut", size=2)
    def cut(items: list[Item[str]]) -> None: ...

    batches.command("render", ["echo", "5"], result="last_line")
    batches.wait_for("approval", signal="approved")

    @batches.phase(name="show")
    def show_all(film: str, cut: int, render: int, approval: int) -> None: ...

    assert len(batches.plan.phases) == 4


# ── Pipeline.result_of ────────────────────────────────────────────────────────────────────────────────────────────


studio = Pipeline("studio")


@studio.phase
def script(topic: str) -> Video | Jump:
    return Video(topic)


@studio.phase(name="filmed")
async def film(topic: str) -> list[Struct] | None:
    return None


@studio.phase
def release(topic: str) -> datetime:
    return datetime.now(UTC)


@studio.phase
def review(topic: str) -> Model | Finish:
    return Finish()


@studio.phase
def untyped(topic):  # type: ignore[no-untyped-def]
    return topic


@studio.batch("index", size=2)
def index(items: list[Item[str]]) -> None: ...


def with_results(**results: Any) -> Task:
    return a_task(pipeline="studio", phase="release", results_json=values.encode(results))


def test_the_result_of_a_phase_has_the_type_that_its_function_declares() -> None:
    task = with_results(
        script={"url": "u"},
        filmed=[{"url": "v"}],
        release="2026-01-05T12:00:00Z",
        review={"url": "w"},
        untyped={"a": 1},
    )
    assert studio.result_of(task, script) == Video("u")
    assert studio.result_of(task, film) == [Struct("v")]
    assert studio.result_of(task, release) == datetime(2026, 1, 5, 12, tzinfo=UTC)
    assert studio.result_of(task, review) == Model(url="w")
    assert studio.result_of(task, untyped) == {"a": 1}


def test_a_phase_without_a_result_is_an_error_unless_its_type_has_none() -> None:
    task = with_results(script=None)
    assert studio.result_of(task, film) is None
    assert studio.result_of(task, untyped) is None
    with pytest.raises(BadInput) as refused:
        studio.result_of(task, release)
    assert str(refused.value) == "task t1 has no result of phase 'release': it is waiting in 'release'"
    assert refused.value.field == "phase"


def test_a_result_of_another_type_than_declared_is_refused() -> None:
    for results in ({"script": 5}, {"script": None}):
        with pytest.raises(BadPayload, match="the result of phase 'script' is not a valid"):
            studio.result_of(with_results(**results), script)


def test_a_function_that_is_no_phase_of_the_pipeline_has_no_result() -> None:
    for function, name in ((chain, "chain"), (index, "index")):
        with pytest.raises(BadInput) as refused:
            studio.result_of(with_results(index=1), function)
        assert str(refused.value) == f"{name!r} is no function of a phase of pipeline 'studio'"
        assert refused.value.fix == "results of commands, waits and batches are in task.results"
