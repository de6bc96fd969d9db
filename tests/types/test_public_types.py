"""The public face is typed as a whole: every annotation names what users can import, and no keyword is untyped."""

import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

import onerow
from onerow import Pipeline, PipelineError, Worker
from onerow.engine.worker.options import WorkerOptions
from onerow.pipelines.typed import Payload, Untyped

# Returned or taken only by what the engine's modules use themselves.
OF_THE_ENGINE = {
    "AlertRule", "Children", "Classes", "Definitions", "Events", "Failure", "Handler", "HandlerContext", "Identity",
    "Inbox", "Lease", "LeaseRecord", "Link", "LogFiles", "LogLines", "Masker", "Operation", "PhasePlan", "Plan", "Request",
    "Scope", "Store", "Event", "Outcomes", "Retention", "Counters", "Untyped",
}  # fmt: skip
CLASSES = [each for name in onerow.__all__ if inspect.isclass(each := getattr(onerow, name))]


def public_functions(owner: type) -> Iterator[tuple[str, Any]]:
    for name, member in inspect.getmembers(owner):
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function) and function.__module__.startswith("onerow"):
            yield from ((name, each) for each in typing.get_overloads(function) or [function])


def named_classes(hint: Any) -> Iterator[type]:
    origin = typing.get_origin(hint)
    if inspect.isclass(hint) and origin is None:
        yield hint
    elif inspect.isclass(origin) and origin is not types.UnionType:
        yield origin
    for argument in typing.get_args(hint):
        yield from named_classes(argument)


@pytest.mark.parametrize("owner", CLASSES, ids=lambda owner: owner.__name__)
def test_what_methods_take_and_return_is_exported(owner: type) -> None:
    hints = [hint for _, each in public_functions(owner) for hint in typing.get_type_hints(each).values()]
    hints += typing.get_type_hints(owner).values() if hasattr(owner, "__struct_fields__") else []
    named = {each.__name__ for hint in hints for each in named_classes(hint) if each.__module__.startswith("onerow")}
    assert named - set(onerow.__all__) - OF_THE_ENGINE - _decorators() == set()


def _decorators() -> set[str]:
    return {"AddFunction", "PhaseDecorator"}


@pytest.mark.parametrize("owner", CLASSES, ids=lambda owner: owner.__name__)
def test_every_parameter_is_typed(owner: type) -> None:
    for name, function in public_functions(owner):
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name == "self" or function.__name__ != name:
                continue
            assert parameter.annotation is not parameter.empty, f"{owner.__name__}.{name}: {parameter}"
            if parameter.kind is parameter.VAR_KEYWORD and owner is not onerow.Task:  # Task: for the engine's rules
                assert parameter.annotation is not Any, f"{owner.__name__}.{name}: {parameter}"
                assert typing.get_origin(parameter.annotation) is typing.Unpack or "P.kwargs" in str(parameter)


def test_the_options_of_a_worker_are_its_keywords() -> None:
    parameters = inspect.signature(Worker.__init__).parameters.values()
    keywords = {each.name: each.annotation for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert typing.get_type_hints(WorkerOptions) == keywords


@pytest.mark.parametrize("name", ["add", "add_new", "add_many", "add_async", "add_new_async", "add_many_async"])
def test_an_error_of_a_type_checker_names_queue_and_the_payload(name: str) -> None:
    # Both checkers report the first overload, by its class and by its type parameter.
    of_payload, untyped = typing.get_overloads(getattr(onerow.Queue, name))
    assert of_payload.__qualname__ == untyped.__qualname__ == f"Queue.{name}"
    assert typing.get_args(inspect.signature(of_payload).parameters["pipeline"].annotation) == (Payload,)
    assert inspect.signature(untyped).parameters["pipeline"].annotation == Pipeline[Untyped] | str


def test_a_parameter_of_pipeline_is_the_payload_s_type() -> None:
    pipeline = Pipeline[int]("numbers")
    pipeline.phase(name="double")(lambda number: 2 * number)
    assert pipeline.payload_type is int


@pytest.mark.parametrize("call", ["phase", "command", "batch"])
def test_a_misspelt_option_of_a_phase_gets_a_suggestion(call: str) -> None:
    pipeline: Any = Pipeline("p")
    calls = {
        "phase": lambda: pipeline.phase(concurency=1),
        "command": lambda: pipeline.command("x", ["ls"], concurency=1),
        "batch": lambda: pipeline.batch("x", size=1, concurency=1),
    }
    with pytest.raises(TypeError, match=rf"{call}\(\) has no keyword 'concurency'; did you mean 'concurrency'\?"):
        calls[call]()


def test_a_context_of_the_other_kind_is_an_error_when_the_pipeline_is_built() -> None:
    async def fetch(job: object, ctx: onerow.Context) -> None: ...

    def tag(job: object, ctx: "onerow.AsyncContext") -> None: ...

    with pytest.raises(PipelineError, match="`async def` handler, so annotate its ctx as AsyncContext, not Context"):
        Pipeline("p").phase(fetch)
    with pytest.raises(PipelineError, match="`def` handler, so annotate its ctx as Context, not AsyncContext"):
        Pipeline("p").phase(tag)
