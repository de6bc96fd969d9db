"""Resources, middleware and error tables of an isolated handler: sent to its process by name, and restored there."""

import asyncio
import contextvars
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import Any, Self

import msgspec

from onerow.core.errors import PipelineError
from onerow.engine.handler.call import Call
from onerow.engine.handler.resources import by_name, open_all, open_all_async
from onerow.engine.runners.function_names import importable_name, module_in_child, resolve
from onerow.pipelines.errors import ErrorTable
from onerow.pipelines.extensions import Middleware, Resource


class Extensions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an isolated handler needs besides its arguments; functions as importable names."""

    resources: dict[str, str] = {}
    middleware: list[str] = []
    errors: list[dict[str, str] | str] = []  # a table by the names of classes, or a function


def describe(call: Call) -> Extensions:
    """Return the names that the process needs; raise ValueError if a function can't be imported by name."""
    return Extensions(
        {name: importable_name(each.function) for name, each in call.handler.resources.items()},
        [importable_name(each.function) for each in call.middlewares],
        [
            _names_in_child(table.by_name) if table.function is None else importable_name(table.function)
            for table in call.errors
        ],
    )


def check(call: Call, where: str) -> None:
    """Raise PipelineError if an isolated process could not import what the handler needs."""
    try:
        describe(call)
    except ValueError as error:
        raise PipelineError(f"{where} runs in a process of its own: {error}") from None


def _names_in_child(by_name: dict[str, str]) -> dict[str, str]:
    pairs = ((name.partition(":"), error_class) for name, error_class in by_name.items())
    return {f"{module_in_child(module)}:{qualname}": error_class for (module, _, qualname), error_class in pairs}


def resources_of(extensions: Extensions) -> dict[str, Resource]:
    return {name: Resource.of(resolve(function), name) for name, function in extensions.resources.items()}


def middlewares_of(extensions: Extensions) -> list[Middleware]:
    return [Middleware.of(resolve(name)) for name in extensions.middleware]


def errors_of(extensions: Extensions) -> tuple[ErrorTable, ...]:
    return tuple(
        ErrorTable(each) if isinstance(each, dict) else ErrorTable(function=resolve(each)) for each in extensions.errors
    )


class ChildResources:
    """The resources of one handler in its process, and the event loop that async ones and the handler share."""

    def __init__(self, resources: dict[str, Resource]) -> None:
        self._resources = resources
        self._stack = ExitStack()
        self._runner: asyncio.Runner | None = None
        self.values: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Make them; raise ResourceError."""
        all_of_them = self._resources.values()
        try:
            values = open_all([each for each in all_of_them if not each.is_async], self._stack)
            on_loop = [each for each in all_of_them if each.is_async]
            if on_loop:
                stack = AsyncExitStack()
                self._stack.callback(lambda: self.run(stack.aclose()))
                values |= self.run(open_all_async(on_loop, stack))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.values = by_name(self._resources, values)
        return self

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop of this process."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work, context=contextvars.copy_context())  # the attempt is in this context

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close them; an error is written to the task's log."""
        for close in (self._stack.close, self._close_loop):
            _reported(close)

    def _close_loop(self) -> None:
        if self._runner is not None:
            self._runner.close()


def _reported(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        traceback.print_exc(file=sys.stderr)
