"""Turn the messages of an inbox into rows: receive, read, store the row, then acknowledge.

The row is the source of truth. A crash before the acknowledgement leads to a second delivery, which finds the row and
changes nothing: a task that a message adds has the id that the message gives, or one derived from the message's id.
"""

import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from time import monotonic

from msgspec.structs import replace

from onerow.core import history
from onerow.core.addition import Addition
from onerow.core.errors import BadInput, IllegalMove, InboxUnavailable, RowRefused, UnknownName
from onerow.core.failure import text_of
from onerow.core.messages import (
    AddTasks,
    BadMessage,
    CancelTask,
    FindTask,
    Message,
    Request,
    SendSignal,
    derived_id,
    id_of_addition,
)
from onerow.core.task import Task
from onerow.core.times import read, spell, to_millis
from onerow.engine.control.inbox_counts import InboxCounts, InboxState, drop_old_counts, write_counts
from onerow.engine.events.events import InboxBack, InboxUnreachable, MessageRejected, TaskAdded
from onerow.engine.queue import insert
from onerow.engine.queue.queue import Queue
from onerow.ports import Existing, Inbox, Inserted, StatusMirror

_FLUSH_EVERY = 5.0
_CLEAR_EVERY = 600.0
_WAIT = 5.0  # seconds that one receive waits, so that counts are written and a stop is noticed in time
_SHOW_EVERY = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_DELIVERIES_UNTIL_FOUND = 5
_NOT_FOUND_DELAY = 5.0  # seconds; grows with the deliveries
MESSAGE = "message"
"""Key in the metadata of a task whose id was given by its message: that message."""


class Receiver:
    """A role that receives from one inbox; each runs in a thread of its own."""

    def __init__(self, queue: Queue, inbox: Inbox, worker: str) -> None:
        self._queue = queue
        self._inbox = inbox
        self._worker = worker
        self._fresh = InboxCounts()
        self._flush_at = monotonic() + _FLUSH_EVERY
        self._clear_at = monotonic()
        self._pause = _FIRST_PAUSE
        self._error = ""
        self._mirror = inbox if isinstance(inbox, StatusMirror) else None
        self._show_at = 0.0
        self._shows = False
        self._lock = threading.Lock()
        self._open: dict[int, Message] = {}  # messages of the batch that are neither rejected nor released
        self._gathering = threading.Lock()
        self._gathered: list[Message] = []

    @property
    def state(self) -> InboxState:
        """The inbox as this worker sees it."""
        return InboxState(self._inbox.name, self._error)

    def tick(self, now: datetime) -> float:
        """Receive one batch and store it; return the seconds until the next round."""
        try:
            messages = self._inbox.receive(_SHOW_EVERY if self._shows else _WAIT)
            if messages:
                self.store(messages)
            if monotonic() >= self._show_at:
                self._show_states()
        except InboxUnavailable as error:
            self._flush_if_due()
            return self._unreachable(error)
        if self._error:
            self._error, self._pause = "", _FIRST_PAUSE
            self._queue.events.send(InboxBack(self._inbox.name))
        self._flush_if_due()
        return 0.0

    def receive_available(self) -> InboxCounts:
        """Receive and store the messages that are there now, without waiting; return their counts."""
        total = InboxCounts()
        while messages := self._inbox.receive(0.0):
            before = self._fresh
            self._fresh = InboxCounts()
            self.store(messages)
            total.add(self._fresh)
            before.add(self._fresh)
            self._fresh = before
        self._show_states()
        return total

    def store_and_count(self, messages: Sequence[Message]) -> None:
        """Store messages that were not received here, such as web requests; may be called in several threads at once.

        What other threads bring while one stores is stored by the next in one batch.
        """
        with self._gathering:
            self._gathered.extend(messages)
        with self._lock:
            with self._gathering:
                batch, self._gathered = self._gathered, []
            try:
                if batch:
                    self.store(batch)
            finally:
                self._flush_if_due()

    def write_counts(self) -> None:
        """Write the counts now; may be called in several threads at once."""
        with self._lock:
            self._flush()

    def interrupt(self) -> None:
        """End the wait of the current round."""
        self._inbox.interrupt()

    def close(self, now: datetime) -> None:
        """Write the last counts and close the inbox."""
        try:
            self._flush()
        finally:
            self._inbox.close()

    # ── one batch ──

    def store(self, messages: Sequence[Message]) -> None:
        """Store what the messages ask for and acknowledge them; after an error, have them delivered again."""
        self._fresh.received += len(messages)
        self._open = {id(message): message for message in messages}
        try:
            done = self._store_all(messages)
            if done:
                self._inbox.acknowledge(done)
                self._count_lag(done)
        except Exception:
            with suppress(InboxUnavailable):
                self._release(list(self._open.values()), 1.0)
            raise

    def _release(self, messages: Sequence[Message], after: float) -> None:
        self._settled(messages)
        self._fresh.released += len(messages)
        self._inbox.release(messages, after)

    def _settled(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._open.pop(id(message), None)

    def _store_all(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages whose rows are stored; the others have been rejected or released."""
        done: list[Message] = []
        to_add: dict[str, list[tuple[Message, AddTasks]]] = {}
        to_apply: list[tuple[Message, FindTask | SendSignal | CancelTask]] = []
        for message in messages:
            try:
                request = self._read(message)
            except BadInput as error:
                self._reject(message, str(error))
                continue
            if isinstance(request, AddTasks):
                to_add.setdefault(request.pipeline, []).append((message, request))
            else:
                to_apply.append((message, request))
        for pipeline, items in to_add.items():
            done += self._add(pipeline, items)
        for message, about_task in to_apply:  # the tasks may be those of the same batch
            try:
                if self._apply(message, about_task):
                    done.append(message)
            except (BadInput, IllegalMove) as error:
                self._reject(message, str(error))
        return done

    def _read(self, message: Message) -> Request:
        try:
            return self._inbox.read(message)
        except BadInput:
            raise
        except Exception as error:  # the user's own reading function
            raise BadMessage(f"could not be read: {type(error).__name__}: {text_of(error)}") from error

    def _apply(self, message: Message, request: FindTask | SendSignal | CancelTask) -> bool:
        """Carry out a request about an existing task; return whether the message is done."""
        queue, counts = self._queue, self._fresh
        try:
            task = queue.get(request.task_id)
        except UnknownName as error:
            # Perhaps the message has overtaken the row.
            if message.deliveries >= _DELIVERIES_UNTIL_FOUND:
                raise BadMessage(f"{error} after {message.deliveries} deliveries") from None
            self._release([message], _NOT_FOUND_DELAY * message.deliveries)
            return False
        match request:
            case SendSignal(task_id=task_id, name=name, payload=payload):
                queue.signal(task_id, name, payload, signal_id=message.message_id, by=self._inbox.name)
            case CancelTask(task_id=task_id, written_at=written_at) if not task.ended:
                if written_at is not None and to_millis(written_at) < _last_start(task):
                    raise BadMessage(f"the cancel is older than task {task_id}, which was added or replayed since")
                queue.cancel(task_id, by=self._inbox.name)
        counts.found += 1
        return True

    def _add(self, pipeline: str, items: Sequence[tuple[Message, AddTasks]]) -> list[Message]:
        """Insert the tasks of all messages in one transaction; a message with an invalid one is rejected alone."""
        additions = [
            [_identified(addition, message, number) for number, addition in enumerate(request.additions)]
            for message, request in items
        ]
        try:
            tasks = self._build(pipeline, [addition for each in additions for addition in each])
            answers = insert.insert(self._queue.store, tasks, None)
        except (BadInput, RowRefused) as error:
            if len(items) > 1:
                half = len(items) // 2
                return self._add(pipeline, items[:half]) + self._add(pipeline, items[half:])
            self._reject(items[0][0], str(error))
            return []
        done: list[Message] = []
        pairs = iter(zip(tasks, answers, strict=True))
        for (message, request), own in zip(items, additions, strict=True):
            try:
                for task, answer in list(islice(pairs, len(own))):
                    self._count_added(message, request, task, answer)
                done.append(message)
            except (BadInput, IllegalMove) as error:
                self._reject(message, str(error))
        return done

    def _build(self, pipeline: str, additions: Sequence[Addition]) -> list[Task]:
        queue = self._queue
        own = queue.pipelines.get(pipeline)
        plan, declared = (queue.plan(pipeline), None) if own is None else (own.plan, own.payload_type)
        return insert.new_tasks(queue.store, plan, declared, additions, Addition(), queue.user_id)

    def _count_added(self, message: Message, request: AddTasks, task: Task, answer: Inserted | Existing) -> None:
        counts = self._fresh
        if isinstance(answer, Inserted):
            counts.added += 1
            self._queue.events.send(TaskAdded(answer.task))
            return
        stored = insert.own(task, answer)
        same_id = stored.task_id == task.task_id
        if same_id and stored.metadata.get(MESSAGE) == task.metadata.get(MESSAGE):
            counts.duplicate += 1
        elif not same_id or not stored.ended or request.if_ended == "leave":
            counts.found += 1
        elif request.if_ended == "reject":
            raise BadMessage(f"task {stored.task_id} is already {stored.status}; set force to run it again")
        elif self._is_replayed(stored, message):
            counts.duplicate += 1
        else:
            self._queue.replay(stored.task_id, by=self._inbox.name, note=_note(message))
            counts.found += 1

    @staticmethod
    def _is_replayed(task: Task, message: Message) -> bool:
        return any(entry.what == "replay" and entry.note == _note(message) for entry in history.entries(task.logs_json))

    def _reject(self, message: Message, reason: str) -> None:
        reason = self._queue.masker.text(reason)
        self._inbox.reject(message, reason)
        self._settled([message])
        self._fresh.rejected += 1
        self._queue.events.send(MessageRejected(self._inbox.name, message.message_id, reason))

    def _show_states(self) -> None:
        """Show the states of tasks to those who only read the inbox, if it has such readers."""
        if self._mirror is not None:
            self._show_at = monotonic() + _SHOW_EVERY
            asked = self._mirror.followed()
            self._shows = bool(asked)
            if asked:
                self._mirror.show(asked, self._queue.store.fetch(asked))

    # ── counts and outages ──

    def _count_lag(self, done: Sequence[Message]) -> None:
        sent = [message.sent_at for message in done if message.sent_at is not None]
        if sent:
            lag = self._queue.store.now() - min(sent)
            self._fresh.lag = max(self._fresh.lag, int(lag.total_seconds() * 1000))

    def _unreachable(self, error: InboxUnavailable) -> float:
        if not self._error:
            self._queue.events.send(InboxUnreachable(self._inbox.name, str(error)))
        self._error = str(error)
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        return pause

    def _flush_if_due(self) -> None:
        if monotonic() >= self._flush_at:
            self._flush()

    def _flush(self) -> None:
        store = self._queue.store
        now = store.now()
        self._flush_at = monotonic() + _FLUSH_EVERY
        if self._fresh != InboxCounts():
            fresh, self._fresh = self._fresh, InboxCounts()
            write_counts(store, self._inbox.name, self._worker, fresh, now)
        if monotonic() >= self._clear_at:
            self._clear_at = monotonic() + _CLEAR_EVERY
            drop_old_counts(store, now)


def _identified(addition: Addition, message: Message, number: int) -> Addition:
    """Give an addition the id that each delivery of its message yields, or note the message of a given id."""
    if addition.task_id is None:
        return replace(addition, task_id=id_of_addition(addition, message, number))
    if addition.task_id == derived_id(message.message_id):
        return addition
    return replace(addition, metadata={**(addition.metadata or {}), MESSAGE: _note(message)})


_NOTE = re.compile(r"message (?P<id>.*?)(?: sent (?P<sent_at>\S+Z))?", re.DOTALL)


def _note(message: Message) -> str:
    """Return a text that names a message and when it was sent."""
    return f"message {message.message_id}" + ("" if message.sent_at is None else f" sent {spell(message.sent_at)}")


def _last_start(task: Task) -> datetime:
    """Return when the task was added or last replayed or retried: when the message was sent that asked for it, if any.

    Two files of a folder are compared by the folder's clock, which may differ from the store's.
    """
    added = _sent_at(str(task.metadata.get(MESSAGE, ""))) or task.created_at
    again = [
        _sent_at(entry.note) or entry.when
        for entry in history.entries(task.logs_json)
        if entry.what in ("replay", "retry")
    ]
    return max([added, *again])


def _sent_at(note: str) -> datetime | None:
    found = _NOTE.fullmatch(note)
    return None if found is None or found["sent_at"] is None else read(found["sent_at"])
