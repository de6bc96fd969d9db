"""A worker inside an ASGI application: it starts and drains with it. For small sites; else run `onerow worker`."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from onerow.engine.queue.queue import Queue
from onerow.engine.worker import Worker
from onerow.pipelines.pipeline import Pipeline

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def lifespan(queue: Queue, *pipelines: Pipeline, within: Lifespan | None = None, **options: Any) -> Lifespan:
    """An ASGI lifespan that runs a worker: `FastAPI(lifespan=lifespan(queue, videos, concurrency=4))`.

    options: those of Worker. within: a lifespan of the app's own, entered first and left last.
    """

    @asynccontextmanager
    async def run(app: Any) -> AsyncIterator[None]:
        embedded = Embedded(lambda: Worker(queue, pipelines, **options))
        if within is None:
            async with embedded.working():
                yield
        else:
            async with within(app), embedded.working():
                yield

    return run


class Embedded:
    """A worker in a thread of this process, and another in its place when hung work made it give up."""

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self._worker = make()
        self._stopping = False
        self._trouble: BaseException | None = None
        self._up = threading.Event()  # it serves, or it never will
        self._thread = threading.Thread(target=self._main, name="onerow-worker")

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """While inside, tasks are worked on; at the end the worker drains."""
        self._thread.start()
        try:
            while not (self._up.is_set() or self._worker.ready.is_set()):
                await asyncio.to_thread(self._worker.ready.wait, 0.1)
            if self._trouble is not None:
                raise self._trouble  # the app should not come up without its worker
            yield
        finally:
            self._stopping = True
            self._worker.stop()
            await asyncio.to_thread(self._thread.join)

    def _main(self) -> None:
        try:
            while True:
                self._worker.run()
                if self._stopping or not self._worker.condemned:
                    return
                self._worker = self._make()
        except BaseException as error:
            self._trouble = error
        finally:
            self._up.set()
