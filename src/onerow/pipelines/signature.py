"""Inspect handlers: the types of their parameters, and the JSON schema of the payload."""

import inspect
import typing
from collections.abc import Callable, Container, Mapping
from typing import Any

import msgspec

from onerow.core.errors import PipelineError

CONTEXT = "ctx"


def parameter_types(
    function: Callable[..., Any], where: str = "a handler", without: Container[str] = ()
) -> Mapping[str, Any]:
    """Return the declared types of a handler's parameters, without `ctx` and those in `without`."""
    wanted = {
        name: hint
        for name, hint in getattr(function, "__annotations__", {}).items()
        if name not in ("return", CONTEXT) and name not in without
    }
    if not wanted:
        return {}
    hints = {}
    for name, hint in wanted.items():
        try:
            hints[name] = resolved(function, name, hint)
        except Exception as error:
            raise PipelineError(
                f"{where}: the annotation {hint!r} of {name!r} can't be resolved ({error})",
                fix="define or import the type at the top of the module",
            ) from None
    return hints


def resolved(function: Callable[..., Any], name: str, hint: Any) -> Any:
    """Return an annotation of a function as a type; raise if it is text that can't be resolved."""
    if isinstance(hint, str):
        probe = type("probe", (), {"__annotations__": {name: hint}})
        hint = typing.get_type_hints(probe, globalns=getattr(inspect.unwrap(function), "__globals__", {}))[name]
    return Any if hint is inspect.Parameter.empty else hint


def check_context(function: Callable[..., Any], where: str) -> None:
    """Raise PipelineError if `ctx` has the type of the other kind of handler; a forgotten `await` would go unnoticed."""
    hint = getattr(function, "__annotations__", {}).get(CONTEXT)
    name = hint.rpartition(".")[2] if isinstance(hint, str) else getattr(hint, "__name__", "")
    expected, kind = ("AsyncContext", "async def") if inspect.iscoroutinefunction(function) else ("Context", "def")
    if name in ("Context", "AsyncContext") and name != expected:
        raise PipelineError(f"{where} is a `{kind}` handler, so annotate its ctx as {expected}, not {name}")


def declared_type(source: str, hint: Any) -> Any:
    """Return the type of a parameter's value: Post for `items: list[Item[Post]]`, else the declared type."""
    if source != "items":
        return hint
    for _ in range(2):
        hint = next(iter(typing.get_args(hint)), Any)
    return hint


def is_typed(declared: Any) -> bool:
    """Whether a type describes its fields: a dataclass, Struct, TypedDict or pydantic model."""
    return isinstance(declared, type) and (
        issubclass(declared, msgspec.Struct)
        or hasattr(declared, "__dataclass_fields__")
        or hasattr(declared, "model_validate")
        or typing.is_typeddict(declared)
    )


def payload_schema(declared: Any) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Return the JSON schema of the payload's type and its required fields."""
    if declared is None or declared is Any:
        return None, ()
    if hasattr(declared, "model_json_schema"):
        schema = declared.model_json_schema()
        return schema, tuple(schema.get("required", ()))
    try:
        schema = msgspec.json.schema(declared)
    except TypeError as error:
        raise PipelineError(f"the payload type {declared!r} can't be stored as JSON: {error}") from None
    body = schema
    if "$ref" in schema:
        body = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema, tuple(body.get("required", ()))


def fields(schema: dict[str, Any] | None) -> frozenset[str] | None:
    """Return the fields that a payload of this schema can have; None if it can have any."""
    if schema is None:
        return None
    if "$ref" in schema:
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    return frozenset(schema["properties"]) if "properties" in schema else None
