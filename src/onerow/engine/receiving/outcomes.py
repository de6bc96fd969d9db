"""Count and report what became of messages."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from onerow.core.message_outcomes import Outcome, outcome_at_receipt, outcome_of_work
from onerow.core.messages import Message
from onerow.core.task import Task
from onerow.engine.events.events import (
    MessageHandled,
    MessageReceived,
    TaskCancelled,
    TaskCompleted,
    TaskEvent,
    TaskFailed,
)
from onerow.engine.queue.queue import Queue
from onerow.ports import MessageQueue

_MOST_EXPECTED = 10_000
_ENDS: tuple[type[TaskEvent], ...] = (TaskCompleted, TaskFailed, TaskCancelled)


class _Expected:
    """A message whose tasks have not all ended."""

    def __init__(self, message_id: str, task_ids: Iterable[str]) -> None:
        self.message_id = message_id
        self.left = set(task_ids)
        self.ended: list[Task] = []


class Outcomes:
    """The outcomes of the messages of one inbox in this process; thread-safe.

    A message that is acknowledged as soon as its row is stored gets its outcome when its task ends in this process; if
    another process runs the task, only that process knows.
    """

    def __init__(self, queue: Queue, inbox: MessageQueue, name: str, worker: str) -> None:
        self._queue = queue
        self._inbox = inbox
        self._name = name
        self._worker = worker
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._expected: OrderedDict[str, _Expected] = OrderedDict()  # by task id

    def listen(self) -> None:
        """Hear of tasks that end in this process."""
        for kind in _ENDS:
            self._queue.events.on(kind, self._ended)

    def unlisten(self) -> None:
        """Undo `listen`."""
        for kind in _ENDS:
            self._queue.events.off(kind, self._ended)

    def received(self, messages: Sequence[Message]) -> None:
        """Send an event for each message."""
        if self._queue.events.wanted(MessageReceived):
            log_name = self._inbox.log_names.get("received", "")
            for message in messages:
                self._queue.events.send(MessageReceived(self._name, message.message_id, message.deliveries, log_name))

    def expect(self, message: Message, task_ids: Iterable[str]) -> None:
        """Expect the end of tasks that are about to be stored; one may end before the message is acknowledged."""
        expected = _Expected(message.message_id, task_ids)
        with self._lock:
            self._expected |= dict.fromkeys(expected.left, expected)
            while len(self._expected) > _MOST_EXPECTED:
                self._expected.popitem(last=False)

    def forget(self, task_ids: Iterable[str]) -> None:
        """Expect nothing of these tasks: their message was rejected."""
        with self._lock:
            for task_id in task_ids:
                self._expected.pop(task_id, None)

    def acknowledged(self, message: Message, tasks: list[Task]) -> None:
        """Record the outcome of an acknowledged message if its tasks need no worker any more.

        Not if a task is no longer expected: the event of its end has come first, and recorded the outcome.
        """
        now = self._queue.store.now()
        outcome = outcome_at_receipt(tasks, after_work=False, worker=self._worker, now=now)
        if not tasks or outcome is None:
            return
        with self._lock:
            expected = [self._expected.pop(task.task_id, None) for task in tasks]
        if None in expected:
            return
        self.record(message.message_id, tasks, outcome, found=True)

    def record(self, message_id: str, tasks: Iterable[Task], outcome: Outcome, *, found: bool = False) -> None:
        """Count an outcome and send its event; found: the tasks had this outcome when the message arrived."""
        with self._lock:
            self._counts[outcome] = self._counts.get(outcome, 0) + 1
        if not self._queue.events.wanted(MessageHandled):
            return
        names = self._inbox.log_names
        log_name = names.get("found_completed" if found else "completed", "") if outcome is Outcome.OK else ""
        ids = tuple(task.task_id for task in tasks)
        self._queue.events.send(MessageHandled(self._name, message_id, ids, outcome, found, log_name))

    def take(self) -> dict[str, int]:
        """Return the counts since the last call."""
        with self._lock:
            counts, self._counts = self._counts, {}
            return counts

    def _ended(self, event: TaskEvent) -> None:
        if event.task.task_id not in self._expected:
            return
        with self._lock:
            expected = self._expected.pop(event.task.task_id, None)
            if expected is None:
                return
            expected.left.discard(event.task.task_id)
            expected.ended.append(event.task)
            if expected.left:
                return
        outcome = outcome_of_work(expected.ended)
        if outcome is not None:
            self.record(expected.message_id, expected.ended, outcome)
