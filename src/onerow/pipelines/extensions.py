"""Resources (objects made once per worker process) and middleware (code around each attempt) of pipelines and queues."""

import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeVar, overload

import msgspec

from onerow.core.errors import PipelineError
from onerow.core.names import check_name

Function = TypeVar("Function", bound=Callable[..., Any])
Around = Callable[
    [Any], Iterator[None] | AsyncIterator[None] | AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
]
"""A middleware: a generator function of the attempt's context that yields once."""


class Resource(msgspec.Struct, frozen=True):
    """A function that makes an object for handlers; a generator function also closes it, after its `yield`."""

    name: str
    function: Callable[[], Any]
    is_async: bool  # made and closed on the event loop

    @classmethod
    def of(cls, function: Callable[..., Any], name: str) -> "Resource":
        """Describe a function; raise PipelineError if it can't make a resource."""
        if not callable(function):
            raise PipelineError(
                f"resource {name!r} must be a function that makes it, not {function!r}", field="resource"
            )
        bare = inspect.unwrap(function)
        needed = [each.name for each in inspect.signature(function).parameters.values() if each.default is each.empty]
        if needed:
            raise PipelineError(
                f"resource {name!r}: its function takes no parameters, not {needed[0]!r}", field="resource"
            )
        is_async = inspect.iscoroutinefunction(bare) or inspect.isasyncgenfunction(bare)
        return cls(name, bare if _yields(bare) else function, is_async)

    def open(self) -> AbstractContextManager[Any]:
        """Return a context manager that makes the object when entered and closes it when left."""
        return contextmanager(self.function if _yields(self.function) else self._made)()

    def open_async(self) -> AbstractAsyncContextManager[Any]:
        """Async `open`."""
        return asynccontextmanager(self.function if _yields(self.function) else self._made_async)()

    def _made(self) -> Iterator[Any]:
        yield self.function()

    async def _made_async(self) -> AsyncIterator[Any]:
        made: Awaitable[Any] = self.function()
        yield await made


class Middleware(msgspec.Struct, frozen=True):
    """A generator function of the context: its code before `yield` runs before the handler, the rest after it."""

    name: str
    function: Callable[[Any], Any]
    is_async: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Middleware":
        """Describe a function; raise PipelineError if it can't surround attempts."""
        name = getattr(function, "__qualname__", repr(function))
        bare = inspect.unwrap(function)
        if not _yields(bare):
            raise PipelineError(
                f"middleware {name} must be a generator function of the context that yields once",
                fix=f"write it like def {name}(ctx): …; yield; …",
                field="middleware",
            )
        if len(inspect.signature(bare).parameters) != 1:
            raise PipelineError(f"middleware {name} takes one parameter, the context", field="middleware")
        return cls(name, bare, inspect.isasyncgenfunction(bare))


def _yields(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def interactive() -> bool:
    """Whether the program is typed at a prompt or in a notebook, where a definition that is run again replaces the first."""
    return hasattr(sys, "ps1")


class Surroundable:
    """What can have middleware: a pipeline or a queue."""

    def __init__(self) -> None:
        self.middlewares: list[Middleware] = []

    def middleware(self, function: Function) -> Function:
        """Decorator: run this generator function of the context around each attempt.

        function: its code before `yield` runs before the handler, the rest after it.

        The first one that was added is the outermost; those of the queue surround those of the pipeline.
        """
        self.middlewares.append(Middleware.of(function))
        return function


class Extensible(Surroundable):
    """What can have middleware and resources: a pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.resources: dict[str, Resource] = {}

    @overload
    def resource(self, function: Function, /, *, name: str = "") -> Function: ...

    @overload
    def resource(self, function: None = None, /, *, name: str = "") -> Callable[[Function], Function]: ...

    def resource(self, function: Any = None, /, *, name: str = "") -> Any:
        """Decorator: let handlers take the object that this function makes, by a parameter of its name.

        Each worker process makes it once, when it starts. A generator function yields it, and closes it after the
        `yield` when the worker stops. Objects of an `async def` function are made on the worker's event loop. function:
        takes no parameters. name: by default the function's.
        """

        def add(function: Function) -> Function:
            label = check_name(name or getattr(function, "__name__", ""), "resource")
            if label in self.resources and self.resources[label].function is not function and not interactive():
                raise PipelineError(
                    f"there is already a resource {label!r}", fix="give one another name", field="resource"
                )
            self.resources[label] = Resource.of(function, label)
            return function

        return add if function is None else add(function)
