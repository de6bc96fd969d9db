"""ASGI: run a worker inside an application, and receive signed webhooks."""

import asyncio
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Unpack
from uuid import uuid4

from onerow.core.failure import text_of
from onerow.core.keywords import check_keywords
from onerow.engine.events.events import RoleFailed
from onerow.engine.queue.queue import Queue
from onerow.engine.receiving.receiver import Receiver
from onerow.engine.worker.options import WorkerOptions
from onerow.engine.worker.worker import Worker, must_end
from onerow.inboxes.webhook import WebhookApp, WebhookInbox
from onerow.pipelines.pipeline import Pipeline

_PAUSE = 1.0  # seconds until a new worker: if this process lacks resources, it may lack them still

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def lifespan(
    queue: Queue, *pipelines: Pipeline, within: Lifespan | None = None, **options: Unpack[WorkerOptions]
) -> Lifespan:
    """Return an ASGI lifespan that runs a worker: `FastAPI(lifespan=lifespan(queue, videos, concurrency=4))`.

    queue: its tasks. pipelines: what the worker serves, in addition to what the queue serves. options: those of
    [Worker](#worker). within: the application's own lifespan, entered first and left last.
    """
    check_keywords("lifespan", options, WorkerOptions)

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


def webhook(queue: Queue, inbox: WebhookInbox) -> WebhookApp:
    """Return an ASGI application that turns signed requests into tasks or signals: `app.mount("/hooks/pay", webhook(…))`.

    It answers 200 once the row is stored, 401 to a wrong or old signature, 422 with the reason to a message that can't
    be read, and 503 while the store is unavailable. It needs no worker in this process.

    queue: where the tasks are added. inbox: names the sender and how it signs.
    """
    if isinstance(inbox.pipeline, Pipeline):
        queue.serve(inbox.pipeline)
    receiver = Receiver(queue, inbox, f"webhook-{uuid4().hex[:12]}")
    inbox.hung = receiver.hung
    return WebhookApp(inbox, receiver.store_and_count, receiver.count_refused, receiver.write_counts)


class Embedded:
    """A worker in a thread of this process; replaced by a new one if it ends because of what a handler did."""

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self._worker = make()
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._ended = threading.Event()  # the thread ended, possibly before the worker was ready
        self._thread = threading.Thread(target=self._main, name="onerow-worker")

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Run the worker inside the context; drain it at the end."""
        self._thread.start()
        try:
            while not (self._ended.is_set() or self._worker.ready.is_set()):
                await asyncio.to_thread(self._worker.ready.wait, 0.1)
            if self._error is not None:
                raise self._error  # the application must not start without its worker
            yield
        finally:
            self._stopping.set()
            self._worker.stop()
            await asyncio.to_thread(self._thread.join)

    def _replace(self) -> None:
        """Run a new worker; if it can't start, because the process still lacks resources, leave the old one in place."""
        replaced = self._worker
        try:
            self._worker = self._make()
            if not self._stopping.is_set():
                self._worker.run()
        except Exception as error:
            if self._worker.ready.is_set() and self._worker is not replaced:
                raise
            replaced.queue.events.send(RoleFailed("Worker", text_of(error), traceback.format_exc()))
            self._worker = replaced

    def _main(self) -> None:
        try:
            self._worker.run()
            while must_end(self._worker) and not self._stopping.wait(_PAUSE):
                self._replace()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()
