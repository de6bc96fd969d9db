"""Open the resources of handlers: in a worker for its whole life, in an isolated process for one attempt."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from typing import Any

from onerow.core.errors import ResourceError
from onerow.core.failure import text_of
from onerow.pipelines.extensions import Resource

Values = dict[Callable[[], Any], Any]
"""The objects, by the functions that made them."""


def open_all(resources: Iterable[Resource], stack: ExitStack) -> Values:
    """Make the objects, and let the stack close them in reverse order; raise ResourceError."""
    values: Values = {}
    for resource in resources:
        if resource.function not in values:
            try:
                manager = resource.open()
                values[resource.function] = manager.__enter__()
                stack.callback(_close, resource, manager)
            except Exception as error:
                raise _failed(resource, error) from error
    return values


async def open_all_async(resources: Iterable[Resource], stack: AsyncExitStack) -> Values:
    """Async `open_all`."""
    values: Values = {}
    for resource in resources:
        if resource.function not in values:
            try:
                manager = resource.open_async()
                values[resource.function] = await manager.__aenter__()
                stack.push_async_callback(_aclose, resource, manager)
            except Exception as error:
                raise _failed(resource, error) from error
    return values


def by_name(resources: Mapping[str, Resource], values: Values) -> dict[str, Any]:
    """Return the objects by the names of parameters."""
    return {name: values[each.function] for name, each in resources.items() if each.function in values}


def _close(resource: Resource, manager: AbstractContextManager[Any]) -> None:
    try:
        manager.__exit__(None, None, None)
    except Exception as error:
        raise _failed(resource, error, "closed") from error


async def _aclose(resource: Resource, manager: AbstractAsyncContextManager[Any]) -> None:
    try:
        await manager.__aexit__(None, None, None)
    except Exception as error:
        raise _failed(resource, error, "closed") from error


def _failed(resource: Resource, error: Exception, what: str = "made") -> ResourceError:
    return ResourceError(f"resource {resource.name!r} could not be {what}: {type(error).__name__}: {text_of(error)}")


class OpenResources:
    """The resources of this process: made by `open`, closed by `close`."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._held: _HeldOnLoop | None = None
        self.values: Values = {}

    def open(
        self, resources: Iterable[Resource], begin: Callable[[Coroutine[Any, Any, None]], object] | None = None
    ) -> None:
        """Make objects that are not there yet. begin: starts a coroutine on the event loop; needed for async ones."""
        wanted = [each for each in resources if each.function not in self.values]
        self.values |= open_all([each for each in wanted if not each.is_async], self._stack)
        on_loop = [each for each in wanted if each.is_async]
        if on_loop and begin is not None:
            held = _HeldOnLoop(on_loop)
            begin(held.hold())
            self.values |= held.wait_until_open()
            self._stack.callback(held.close)

    def close(self, within: float, report: Callable[[str], None]) -> None:
        """Close all in reverse order, in a thread, so that one that blocks does not keep the worker from ending."""

        def run() -> None:
            try:
                self._stack.close()
            except BaseException as error:
                report(text_of(error))

        thread = threading.Thread(target=run, name="onerow-resources", daemon=True)
        try:
            thread.start()
            thread.join(within)
        except RuntimeError:  # this process can start no more threads
            run()
        if thread.is_alive():
            report(f"the resources were not closed within {within:.0f} s")
        self.values.clear()


class _HeldOnLoop:
    """Async resources, opened and closed by one asyncio task, as context managers with cancel scopes require."""

    def __init__(self, resources: list[Resource]) -> None:
        self._resources = resources
        self._opened = threading.Event()
        self._closed = threading.Event()
        self._values: Values = {}
        self._error: BaseException | None = None
        self._close: Callable[[], object] = lambda: None

    async def hold(self) -> None:
        loop, close = asyncio.get_running_loop(), asyncio.Event()
        self._close = lambda: loop.call_soon_threadsafe(close.set)
        try:
            async with AsyncExitStack() as stack:
                self._values = await open_all_async(self._resources, stack)
                self._opened.set()
                await close.wait()
        except BaseException as error:
            self._error = error
        finally:
            self._opened.set()
            self._closed.set()

    def wait_until_open(self) -> Values:
        self._opened.wait()
        if self._error is not None:
            raise self._error
        return self._values

    def close(self) -> None:
        """Close them; raise what they raise."""
        self._close()
        self._closed.wait()
        if self._error is not None:
            raise self._error
