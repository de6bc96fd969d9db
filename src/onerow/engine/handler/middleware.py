"""Middleware around a handler: enter in order, leave in reverse order, and name the one that raised."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, TypeVar

from onerow.core.errors import PipelineError
from onerow.core.outcomes import MiddlewareFailed
from onerow.engine.handler.call import Call
from onerow.engine.handler.context import AsyncContext, BaseContext, Context, current
from onerow.pipelines.extensions import Middleware
from onerow.pipelines.handlers import Handler

AnyContext = TypeVar("AnyContext", bound=BaseContext)


def surround(call: Call, middlewares: Sequence[Middleware]) -> None:
    """Put middleware around the handler of a call; the first one is the outermost."""
    if middlewares:
        call.function, call.middlewares = _surrounded(call.handler, middlewares), middlewares


def _surrounded(handler: Handler, middlewares: Sequence[Middleware]) -> Callable[..., Any]:
    function = handler.function
    takes_items = any(parameter.source == "items" for parameter in handler.parameters)
    if not handler.is_async:
        if wrong := next((each for each in middlewares if each.is_async), None):
            raise PipelineError(
                f"middleware {wrong.name} is async and can't surround the plain function {function.__qualname__}",
                fix="write it with def, or the handler with async def",
                field="middleware",
            )

        @functools.wraps(function)
        def run(*args: Any, **named: Any) -> Any:
            culprit = _Culprit()
            try:
                with ExitStack() as stack:
                    ctx = _context(Context, takes_items)
                    for each in middlewares:
                        stack.enter_context(_Layer(each, ctx, culprit))
                    return function(*args, **named)
            except Exception as error:
                culprit.raise_for(error)
                raise

        return run

    @functools.wraps(function)
    async def arun(*args: Any, **named: Any) -> Any:
        culprit = _Culprit()
        try:
            async with AsyncExitStack() as stack:
                ctx, async_ctx = _context(Context, takes_items), _context(AsyncContext, takes_items)
                for each in middlewares:
                    if each.is_async:
                        await stack.enter_async_context(_AsyncLayer(each, async_ctx, culprit))
                    else:
                        stack.enter_context(_Layer(each, ctx, culprit))
                return await function(*args, **named)
        except Exception as error:
            culprit.raise_for(error)
            raise

    return arun


def _context(kind: type[AnyContext], takes_items: bool) -> AnyContext:
    link = current.get()
    assert link is not None
    ctx = kind(link.tasks[0], link)
    if takes_items:
        ctx.tasks = link.tasks
    return ctx


class _Culprit:
    """The middleware that raised an exception of its own, and the exception."""

    def __init__(self) -> None:
        self._name = ""
        self._error: BaseException | None = None

    def blame(self, name: str, error: BaseException) -> None:
        self._name, self._error = name, error

    def raise_for(self, error: Exception) -> None:
        """Raise MiddlewareFailed if this exception is that of a middleware."""
        if error is self._error:
            raise MiddlewareFailed(self._name, error) from error


class _Layer:
    """One middleware as a context manager; it never suppresses the handler's exception."""

    def __init__(self, middleware: Middleware, ctx: Context, culprit: _Culprit) -> None:
        self._name = middleware.name
        self._manager = contextmanager(middleware.function)(ctx)
        self._culprit = culprit

    def __enter__(self) -> None:
        try:
            self._manager.__enter__()
        except BaseException as error:
            self._culprit.blame(self._name, error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._manager.__exit__(kind, error, trace)
        except BaseException as raised:
            if raised is not error:
                self._culprit.blame(self._name, raised)
            raise


class _AsyncLayer:
    """Async `_Layer`."""

    def __init__(self, middleware: Middleware, ctx: AsyncContext, culprit: _Culprit) -> None:
        self._name = middleware.name
        self._manager = asynccontextmanager(middleware.function)(ctx)
        self._culprit = culprit

    async def __aenter__(self) -> None:
        try:
            await self._manager.__aenter__()
        except BaseException as error:
            self._culprit.blame(self._name, error)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._manager.__aexit__(kind, error, trace)
        except BaseException as raised:
            if raised is not error:
                self._culprit.blame(self._name, raised)
            raise
