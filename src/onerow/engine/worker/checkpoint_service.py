"""Answer the requests of running handlers, in their own threads; a request is stored before it is answered."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import msgspec

from onerow.core import rules, steps
from onerow.core.addition import Addition
from onerow.core.errors import LeaseLost, StoreUnavailable
from onerow.core.outcomes import Cancelled
from onerow.core.rules import checkpoints
from onerow.core.status import PROCESSING
from onerow.core.task import Task
from onerow.engine.handler.requests import (
    AwaitSignal,
    BeginSpawn,
    ChildPage,
    EndSpawn,
    Join,
    Remember,
    Request,
    Spawn,
)
from onerow.engine.queue.adding import add_children
from onerow.engine.queue.children import Children
from onerow.engine.queue.compare_and_swap import update_held
from onerow.engine.queue.insert import child_id
from onerow.engine.queue.queue import Queue
from onerow.engine.runners.attempt import Attempt
from onerow.ports import Store

_encode = msgspec.json.Encoder().encode
Answer = TypeVar("Answer")


class CheckpointService:
    """Write to the row of a running attempt, guarded by its token."""

    def __init__(self, queue: Queue, children: Children) -> None:
        self._store: Store = queue.store
        self._queue = queue
        self._children = children

    def answer(self, attempt: Attempt, request: Request) -> str:
        """Return the answer as JSON text; raise Cancelled if the attempt has lost its lease or should stop."""
        match request:
            case Remember(name=name, result=result):
                self._write(attempt, lambda task, now: checkpoints.remember(task, name, result, now))
                return "null"
            case AwaitSignal(name=name, signal=signal):
                self._read(attempt)
                self._write(attempt, lambda task, now: checkpoints.take_signal(task, name, signal, now))
                return self._record(attempt, name)
            case BeginSpawn(name=name):
                self._write(attempt, lambda task, now: checkpoints.spawning(task, name, now))
                return bytes(steps.records(attempt.task)[name].result).decode()
            case Spawn():
                return self._retrying(attempt, lambda: self._spawn(attempt.task, request))
            case EndSpawn(name=name, count=count):
                self._write(attempt, lambda task, now: checkpoints.spawned(task, name, count, now))
                return "null"
            case Join(name=name):
                return self._retrying(attempt, lambda: self._join(attempt.task, name))
            case ChildPage(after=after):
                return self._retrying(attempt, lambda: self._children_page(attempt.task, after))

    def _spawn(self, parent: Task, spawn: Spawn) -> str:
        # Child ids follow from the spawn, so that a spawn repeated after a crash adds nothing.
        additions = [
            Addition(
                **{"priority": parent.priority, **terms},
                task_id=child_id(parent.task_id, parent.phase, parent.generation, f"{spawn.name}:{key}"),
                user_id=parent.user_id,
            )
            for key, terms in spawn.children
        ]
        tasks = add_children(self._queue, spawn.pipeline, additions, parent.task_id, steps.spawned_since(parent))
        # A child whose unique key is held by another task was not added: the parent does not wait for it.
        own = {task.task_id for task in tasks} & {addition.task_id for addition in additions}
        return str(len(own))

    def _join(self, parent: Task, name: str) -> str:
        counts = self._children.tally(parent)
        if not rules.children_ended(parent, counts):
            record = steps.records(parent).get(name)
            return '{"expired":true}' if record is not None and record.expired else "null"
        return _encode({"counts": counts}).decode()

    def _children_page(self, parent: Task, after: str | None) -> str:
        page = self._children.page(parent, after)
        children = [
            {
                "task_id": child.task_id,
                "status": child.status.value,
                "payload": child.payload,
                "result": child.result,
                "error": child.error,
                "error_class": child.error_class,
            }
            for child in page.tasks
        ]
        return _encode({"children": children, "next": page.next}).decode()

    def _record(self, attempt: Attempt, name: str) -> str:
        record = steps.records(attempt.task).get(name)
        return "null" if record is None or record.open else _encode(record).decode()

    def _write(self, attempt: Attempt, rule: Callable[[Task, datetime], Task | None]) -> None:
        """Apply a rule to the current row; write nothing if the rule returns None.

        If an earlier write succeeded and its answer was lost, writing the same record again changes nothing.
        """

        def write() -> Task:
            return update_held(self._store, attempt.task, lambda task, now: rule(task, now) or task)

        try:
            task = self._retrying(attempt, write)
        except LeaseLost:
            raise self._lost(attempt) from None
        self._hear(attempt, task)

    def _read(self, attempt: Attempt) -> None:
        found = self._retrying(attempt, lambda: self._store.fetch([attempt.task.task_id]))
        self._hear(attempt, found[0] if found else None)

    def _hear(self, attempt: Attempt, task: Task | None) -> None:
        if task is None or task.token != attempt.task.token or task.status is not PROCESSING:
            raise self._lost(attempt)
        attempt.heard(task)

    def _lost(self, attempt: Attempt) -> Cancelled:
        attempt.ask_to_stop("lost")
        return Cancelled("lost")

    def _retrying(self, attempt: Attempt, call: Callable[[], Answer]) -> Answer:
        """Retry a call while the store is unavailable, until the attempt should stop."""
        pause = 0.02
        while True:
            try:
                return call()
            except StoreUnavailable:
                if attempt.stop is not None:
                    raise Cancelled(attempt.stop) from None
                time.sleep(pause)
                pause = min(pause * 2, 1.0)
