"""A bounded pool of threads for calls to the store, which block."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from onerow.web.problems import Problem, Refused

T = TypeVar("T")
THREADS = 16
_MOST_WAITING = 200


class Pool:
    """Runs blocking functions for the event loop; refuses more than some hundred at once instead of queueing them."""

    def __init__(self, threads: int = THREADS, name: str = "onerow-web") -> None:
        self._threads = threads
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._counting = threading.Lock()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a function in a thread and return its result."""
        if self._waiting >= _MOST_WAITING:
            raise Refused(Problem(503, "too busy", "too many requests are in progress", retry_after=1))
        with self._counting:
            self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._opened(), function, *arguments)
        finally:
            with self._counting:
                self._waiting -= 1

    def submit(self, function: Callable[[], object]) -> None:
        """Run a function in a thread; its result is not wanted."""
        self._opened().submit(function)

    def _opened(self) -> ThreadPoolExecutor:
        with self._counting:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
            return self._executor

    def close(self) -> None:
        """End the threads; the next use starts new ones."""
        with self._counting:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)
