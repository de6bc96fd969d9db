"""Threads for everything that waits for the store, so that the event loop answers keys at once."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """A few daemon threads: a read that hangs in the store must not delay the end of the program."""

    def __init__(self, threads: int, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"onerow-monitor-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def call(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a function in a thread; return a future of the running event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            if future.cancelled():  # before it began
                return
            try:
                result = function()
            except BaseException as error:
                raised = error  # `error` is unbound after this block
                _tell(loop, future, lambda: future.set_exception(raised))
            else:
                _tell(loop, future, lambda: future.set_result(result))

        self._calls.put(run)
        return future

    def submit(self, function: Callable[[], None]) -> None:
        """Call a function in a thread, from any thread; its result is not wanted."""
        self._calls.put(function)

    def close(self, within: float) -> None:
        """End the threads; one that still waits for the store is left to the end of the process."""
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join(within)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _tell(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", tell: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(lambda: None if future.done() else tell())
    except RuntimeError:
        pass  # the event loop has ended
