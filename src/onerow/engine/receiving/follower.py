"""Hold messages until their work is done, for inboxes that acknowledge after the work."""

import threading
from collections.abc import Sequence
from datetime import datetime
from time import monotonic
from typing import Protocol

from onerow.core.errors import InboxUnavailable, StoreError
from onerow.core.messages import Message
from onerow.core.status import FAILED, WAITING
from onerow.core.task import Task
from onerow.engine.events.events import MessageHandled
from onerow.engine.queue.queue import Queue
from onerow.ports import Inbox, MessageQueue

_LOOK_EVERY = 1.0
_BUSY_FOR = 30.0
"""Seconds until a message is delivered again whose task another worker runs."""
_FIRST_BACK_OFF, _LONGEST_BACK_OFF = 30.0, 900.0
_MOST_DELIVERIES = 10
"""Deliveries of a message whose task has failed before it is set aside."""


class HoldingInbox(Inbox, MessageQueue, Protocol):
    """An inbox that is a message queue."""


class _Held:
    """A message, and the tasks that it waits for."""

    def __init__(self, message: Message, task_ids: tuple[str, ...], hold_for: float) -> None:
        self.message = message
        self.task_ids = task_ids
        self.extend_at = monotonic() + hold_for / 3


class WorkFollower:
    """A role: looks at the tasks of held messages; acknowledges, extends or returns each message accordingly.

    | its tasks | the message |
    | --- | --- |
    | are completed or cancelled | is acknowledged |
    | have ended, and one has failed | is delivered again, later each time; after some deliveries it is set aside |
    | run in another worker when it arrives | is delivered again after half a minute |
    | else | stays hidden |
    """

    def __init__(self, queue: Queue, inbox: HoldingInbox, worker: str) -> None:
        self._queue = queue
        self._inbox = inbox
        self._worker = worker
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self.error = ""

    @property
    def is_full(self) -> bool:
        """Whether no more messages should be received now."""
        return len(self._held) >= self._inbox.in_flight

    def take(self, message: Message, tasks: list[Task]) -> None:
        """Hold a message whose rows are stored; or end it at once, if no task needs this worker."""
        with self._lock:
            known = self._held.get(message.message_id)
            if known is not None:  # delivered again, and only the newest receipt is valid
                known.message = message
                return
        if all(task.ended for task in tasks):
            self._end(message, tasks, held=False)
        elif any(task.status is WAITING or task.leased_by == self._worker for task in tasks):
            with self._lock:
                held = _Held(message, tuple(task.task_id for task in tasks), self._inbox.hold_for)
                self._held[message.message_id] = held
        else:
            self._inbox.release([message], _BUSY_FOR)
            self._report(message, tasks, acknowledged=False, held=False)

    def tick(self, now: datetime) -> float:
        """Look once at all tasks; return the seconds until the next look."""
        try:
            self._look()
            self.error = ""
        except InboxUnavailable as error:
            self.error = str(error)  # the messages stay held, and the next look repeats
        return _LOOK_EVERY

    def close(self, now: datetime) -> None:
        """Have the messages whose tasks have not ended delivered to other workers."""
        try:
            self._look()
            self._inbox.release([held.message for held in self._all()], 0.0)
        except (InboxUnavailable, StoreError):
            pass  # they are delivered again when they are no longer hidden

    def _all(self) -> list[_Held]:
        with self._lock:
            return list(self._held.values())

    def _look(self) -> None:
        held = self._all()
        if not held:
            return
        try:
            found = self._queue.store.fetch([key for each in held for key in each.task_ids])
        except StoreError:
            self._extend([each for each in held if monotonic() >= each.extend_at])
            raise
        rows = {task.task_id: task for task in found}
        done: list[tuple[Message, list[Task]]] = []
        to_extend: list[_Held] = []
        for each in held:
            tasks = [rows[key] for key in each.task_ids if key in rows]  # a purged task has ended long ago
            if not all(task.ended for task in tasks):
                if monotonic() >= each.extend_at:
                    to_extend.append(each)
            elif _failed(tasks):
                self._end(each.message, tasks, held=True)
            else:
                done.append((each.message, tasks))
        self._inbox.acknowledge([message for message, _ in done])
        for message, tasks in done:
            self._forget(message)
            self._report(message, tasks, acknowledged=True, held=True)
        self._extend(to_extend)

    def _extend(self, held: Sequence[_Held]) -> None:
        hold_for = self._inbox.hold_for
        # A third, so that two lost extensions do not lead to another delivery.
        until = monotonic() + hold_for / 3
        self._inbox.release([each.message for each in held], hold_for)
        for each in held:
            each.extend_at = until

    def _end(self, message: Message, tasks: Sequence[Task], *, held: bool) -> None:
        """End a message whose tasks have ended."""
        failed = _failed(tasks)
        if not failed:
            self._inbox.acknowledge([message])
        elif message.deliveries >= _MOST_DELIVERIES:
            task = failed[0]
            reason = f"task {task.task_id} has failed, after {message.deliveries} deliveries: {task.error}"
            self._inbox.reject(message, self._queue.masker.text(reason))
        else:
            growth = min(message.deliveries, 20) - 1
            self._inbox.release([message], min(_FIRST_BACK_OFF * 2**growth, _LONGEST_BACK_OFF))
        self._forget(message)
        self._report(message, tasks, acknowledged=not failed, held=held)

    def _report(self, message: Message, tasks: Sequence[Task], *, acknowledged: bool, held: bool) -> None:
        events = self._queue.events
        if events.wanted(MessageHandled):
            events.send(MessageHandled(self._inbox.name, message.message_id, tuple(tasks), acknowledged, held))

    def _forget(self, message: Message) -> None:
        with self._lock:
            self._held.pop(message.message_id, None)


def _failed(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if task.status is FAILED]
