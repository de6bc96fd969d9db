"""Handlers: the function of a phase and where the values of its parameters come from."""

import inspect
from collections.abc import Callable, Mapping, Set
from typing import Any, Literal

import msgspec

from onerow.core.errors import PipelineError
from onerow.core.suggest import did_you_mean
from onerow.pipelines.errors import ErrorTable
from onerow.pipelines.extensions import Resource
from onerow.pipelines.signature import CONTEXT, check_context, declared_type, parameter_types


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a handler: the source of its value and its type."""

    name: str
    source: Literal["payload", "result", "context", "items", "resource"]
    type: Any  # Any: as decoded
    keyword: bool  # passed by name


class Handler(msgspec.Struct, frozen=True):
    """The function of a phase with its parsed signature."""

    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    is_async: bool
    isolated: bool
    errors: tuple[ErrorTable, ...] = ()  # asked in this order
    resources: dict[str, Resource] = {}  # by parameter
    memory_limit: int | None = None  # bytes for the process tree of an isolated attempt

    @property
    def takes_items(self) -> bool:
        """Whether it is the function of a batch phase."""
        return bool(self.parameters) and self.parameters[0].source == "items"


def items_parameters(
    function: Callable[..., Any], where: str, resources: Mapping[str, Resource]
) -> tuple[Parameter, ...]:
    """Return the parameters of a batch handler; raise PipelineError if it takes more than items and resources."""
    given = list(inspect.signature(function).parameters.values())
    extra = [each.name for each in given[1:] if each.name not in resources]
    if not given or extra or given[0].kind not in (given[0].POSITIONAL_ONLY, given[0].POSITIONAL_OR_KEYWORD):
        raise PipelineError(
            f"{where} takes a list of items and nothing else but resources",
            fix="read payload, results and log from each item",
        )
    name = given[0].name
    hint = parameter_types(function, where, resources).get(name)
    taken = (Parameter(each.name, "resource", Any, True) for each in given[1:])
    return (Parameter(name, "items", declared_type("items", hint), False), *taken)


def parameters_of(
    function: Callable[..., Any], where: str, earlier: Set[str], resources: Mapping[str, Resource]
) -> tuple[Parameter, ...]:
    """Return the parameters of a handler, by name; `earlier`: phases. Raise PipelineError if one can't be filled."""
    hints = parameter_types(function, where, resources)
    found: list[Parameter] = []
    for index, given in enumerate(inspect.signature(function).parameters.values()):
        if given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            raise PipelineError(f"{where}: *{given.name} can't be filled", fix="name the phases whose results it takes")
        keyword = given.kind is given.KEYWORD_ONLY
        if given.name == CONTEXT:
            check_context(function, where)
            found.append(Parameter(CONTEXT, "context", Any, keyword))
        elif index == 0:
            if given.name in earlier:
                raise PipelineError(
                    f"{where}: the first parameter is the payload and can't be named after the phase {given.name!r}"
                )
            found.append(Parameter(given.name, "payload", hints.get(given.name, Any), keyword))
        elif given.name in earlier:
            found.append(Parameter(given.name, "result", hints.get(given.name, Any), keyword))
        elif given.name in resources:
            found.append(Parameter(given.name, "resource", Any, keyword))
        else:
            known = ", ".join(sorted(earlier)) or "none yet"
            raise PipelineError(
                f"{where}: parameter {given.name!r} names no earlier phase (earlier: {known}) and no resource",
                fix=did_you_mean(
                    given.name,
                    {CONTEXT, *earlier, *resources},
                    "besides the payload, parameters are earlier phases, resources and 'ctx'",
                ),
            )
    return tuple(found)
