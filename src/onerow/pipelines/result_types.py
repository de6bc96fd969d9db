"""Whether the result of a phase can have the type that a later phase declares for it."""

import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import inspect as shapes

from onerow.core.outcomes import Finish, Jump
from onerow.pipelines.signature import resolved

_DEEPEST = 10  # levels; a type may contain itself

_KINDS: dict[str, tuple[type[shapes.Type], ...]] = {
    "null": (shapes.NoneType,),
    "bool": (shapes.BoolType,),
    "number": (shapes.IntType, shapes.FloatType),
    "string": (shapes.StrType, shapes.BytesType, shapes.DateTimeType, shapes.DateType, shapes.TimeType,
               shapes.TimeDeltaType, shapes.UUIDType),
    "array": (shapes.ListType, shapes.SetType, shapes.FrozenSetType, shapes.VarTupleType, shapes.CollectionType,
              shapes.TupleType, shapes.NamedTupleType),
    "object": (shapes.DictType, shapes.TypedDictType, shapes.StructType, shapes.DataclassType),
}  # fmt: skip
_KIND_OF = {each: kind for kind, group in _KINDS.items() for each in group}


def return_type(function: Callable[..., Any]) -> Any:
    """Return the declared type of a handler's result; Any if there is none, or if it can't be resolved."""
    try:
        return resolved(function, "return", function.__annotations__["return"])
    except Exception:
        return Any


def result_type(function: Callable[..., Any]) -> Any:
    """Return the type to which a handler's stored result is decoded; Any if JSON can't be decoded to it."""
    kinds = [each for each in _alternatives(return_type(function)) if each not in (Jump, Finish)]
    declared = typing.Union[tuple(kinds)] if kinds else Any  # noqa: UP007  a tuple of types
    try:
        shapes.type_info(declared)
    except Exception:
        return declared if hasattr(declared, "model_validate_json") else Any
    return declared


def never_fits(returned: Any, taken: Any) -> bool:
    """Whether no result of one type, empty lists aside, can be decoded to the other; False if that is not certain."""
    # A result of None is passed on as it is.
    results = [each for each in _alternatives(returned) if each not in (types.NoneType, Jump, Finish)]
    wanted = list(_alternatives(taken))
    if any(hasattr(each, "model_validate_json") for each in wanted):
        return False  # a pydantic model may convert anything
    return bool(results) and not any(_fits(_shape(one), _shape(each)) for one in results for each in wanted)


def _alternatives(hint: Any) -> Iterator[Any]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for each in typing.get_args(hint):
            yield from _alternatives(each)
    else:
        yield types.NoneType if hint is None else hint


def _shape(hint: Any) -> shapes.Type:
    try:
        return shapes.type_info(hint)
    except Exception:  # not a type of JSON values
        return shapes.AnyType()


def _fits(result: shapes.Type, taken: shapes.Type, depth: int = 0) -> bool:
    if isinstance(result, shapes.UnionType):
        return any(_fits(each, taken, depth) for each in result.types)
    if isinstance(taken, shapes.UnionType):
        return any(_fits(result, each, depth) for each in taken.types)
    kind, wanted = _kind(result), _kind(taken)
    if kind is None or wanted is None or depth > _DEEPEST:
        return True  # it may have any value
    if kind != wanted:
        return False
    items = getattr(result, "item_type", None), getattr(taken, "item_type", None)
    if items[0] is not None and items[1] is not None:
        return _fits(items[0], items[1], depth + 1)
    return kind != "object" or _object_fits(result, taken, depth + 1)


def _kind(shape: shapes.Type) -> str | None:
    return "array" if getattr(shape, "array_like", False) else _KIND_OF.get(type(shape))


def _object_fits(result: Any, taken: Any, depth: int) -> bool:
    has = None if isinstance(result, shapes.DictType) else {field.encode_name: field for field in result.fields}
    if isinstance(taken, shapes.DictType):
        if has is None:
            return _fits(result.value_type, taken.value_type, depth)
        return all(_fits(field.type, taken.value_type, depth) for field in has.values() if field.required)
    required = [field for field in taken.fields if field.required]
    if has is None:
        return all(_fits(result.value_type, field.type, depth) for field in required)
    return all(field.encode_name in has and _fits(has[field.encode_name].type, field.type, depth) for field in required)
