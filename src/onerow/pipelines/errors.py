"""The pipeline's own classification of exceptions: from exception class, or by a function, to error class."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onerow.core.errors import PipelineError
from onerow.core.failure import ERROR_CLASSES
from onerow.core.suggest import did_you_mean

ErrorMap = Mapping[type[BaseException], str] | Callable[[BaseException], str | None]
"""Exception class → error class, subclasses included; or a function that returns the error class, or None."""


class ErrorTable(msgspec.Struct, frozen=True):
    """One ErrorMap. Classes are matched by name, so that the table is the same in an isolated process."""

    by_name: dict[str, str] = {}
    function: Callable[[BaseException], str | None] | None = None

    def class_of(self, error: BaseException) -> str | None:
        """Return the error class, or None; raise PipelineError if the function returns something else."""
        if self.function is not None:
            found = self.function(error)
            return found if found is None else _checked(found, "errors")
        return next(
            (self.by_name[name] for kind in type(error).__mro__ if (name := name_of(kind)) in self.by_name), None
        )


def table(errors: ErrorMap | None, where: str) -> tuple[ErrorTable, ...]:
    """Return the table of an ErrorMap, if one is given; raise PipelineError if it is not valid."""
    if errors is None:
        return ()
    if isinstance(errors, Mapping):
        kinds: list[Any] = list(errors)
        for kind in kinds:
            if not isinstance(kind, type) or not issubclass(kind, BaseException):
                raise PipelineError(f"{where}: errors maps exception classes, and {kind!r} is not one", field="errors")
        return (ErrorTable({name_of(kind): _checked(name, where) for kind, name in errors.items()}),)
    if not callable(errors):
        raise PipelineError(f"{where}: errors must be a mapping or a function, not {errors!r}", field="errors")
    return (ErrorTable(function=errors),)


def name_of(kind: type[Any]) -> str:
    """Return the name by which an exception class is matched."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _checked(name: str, where: str) -> str:
    if name not in ERROR_CLASSES:
        raise PipelineError(
            f"{where}: unknown error class {name!r}", fix=did_you_mean(name, ERROR_CLASSES), field="errors"
        )
    return name
