"""Turn the messages of an inbox into rows: receive, read, store the row, then acknowledge.

The row is the source of truth. A crash before the acknowledgement leads to a second delivery, which finds the row and
changes nothing: a task that a message adds has the id that the message gives, or one derived from the message's id.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from time import monotonic

from onerow.core.addition import Addition
from onerow.core.errors import (
    BadInput,
    IllegalMove,
    InboxUnavailable,
    OnerowError,
    RowRefused,
    StoreError,
    UnknownName,
    with_fix,
)
from onerow.core.failure import text_of
from onerow.core.messages import (
    AddTasks,
    BadMessage,
    CancelTask,
    FindTask,
    Message,
    Request,
    SendSignal,
    check_request,
)
from onerow.core.task import Task
from onerow.core.times import to_millis
from onerow.engine.control.inbox_counts import InboxCounts, InboxState, drop_old_counts, write_counts
from onerow.engine.events.events import (
    InboxBack,
    InboxUnreachable,
    MessageHandled,
    MessageRejected,
    SignaturesRefused,
    TaskAdded,
)
from onerow.engine.queue import insert
from onerow.engine.queue.queue import Queue
from onerow.engine.queue.scope import plan_of
from onerow.engine.receiving.deaths import ReadingNote
from onerow.engine.receiving.follower import WorkFollower
from onerow.engine.receiving.origin import MESSAGE, identified, is_replayed, last_start, note_of
from onerow.ports import Existing, Inbox, Inserted

_FLUSH_EVERY = 5.0
_CLEAR_EVERY = 600.0
WAIT = 5.0
"""Seconds that one receive waits, so that counts are written and a stop is noticed in time."""
_LONGEST_READ = 60.0  # seconds after which a function that reads a message counts as hung
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_FULL_PAUSE = 0.5
_DELIVERIES_UNTIL_FOUND = 5
_NOT_FOUND_DELAY = 5.0  # seconds; grows with the deliveries
Stored = list[tuple[Message, list[Task]]]
"""Messages with their stored tasks; without tasks if there is no work to do."""


class Receiver:
    """A role that receives from one inbox; each runs in a thread of its own."""

    def __init__(
        self,
        queue: Queue,
        inbox: Inbox,
        worker: str,
        follower: WorkFollower | None = None,
        wait: float = WAIT,
    ) -> None:
        """follower: shared by the receivers of one message queue. wait: the seconds that one receive waits."""
        self._queue = queue
        self._inbox = inbox
        self._worker = worker
        self._follower = follower
        self._wait = wait
        self.found_nothing = False  # at the last look
        self.batches = 0  # that were stored
        self._note = ReadingNote(queue.store, inbox.name)
        self._reading: tuple[float, Message] | None = None  # since when, and what
        self.wake: Callable[[], object] = lambda: None  # called if a message names a task that may be due
        self._fresh = InboxCounts()
        self._flush_at = monotonic() + _FLUSH_EVERY
        self._clear_at = monotonic()
        self._pause = _FIRST_PAUSE
        self._store_failed = False
        self.error = ""  # why the inbox can't be reached now
        self._lock = threading.Lock()
        self._open: dict[int, Message] = {}  # messages of the batch that are to be released after an error
        self._gathering = threading.Lock()
        self._gathered: list[Message] = []
        self._refused = 0

    @property
    def state(self) -> InboxState:
        """The inbox as this receiver sees it."""
        return InboxState(self._inbox.name, self.error)

    def tick(self, now: datetime) -> float:
        """Receive one batch and store it; return the seconds until the next round."""
        if self._store_failed:  # each delivery of a message counts, and after some it would be set aside
            self._queue.store.check()
            self._store_failed = False
        if self._follower is not None and self._follower.is_full:
            self._flush_if_due()
            return _FULL_PAUSE
        try:
            messages = self._inbox.receive(self._wait)
            self.found_nothing = not messages
            if messages:
                self.store(messages)
                self.batches += 1
        except InboxUnavailable as error:
            self.found_nothing = False
            self._flush_if_due()
            return self._unreachable(error)
        if self.error:
            self.error, self._pause = "", _FIRST_PAUSE
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

    def count_refused(self) -> None:
        """Count a request whose signature is missing, wrong or too old; may be called in several threads at once."""
        with self._gathering:
            self._refused += 1

    def write_counts(self) -> None:
        """Write the counts now; may be called in several threads at once."""
        with self._lock:
            self._flush()

    def interrupt(self) -> None:
        """End the wait of the current round."""
        self._inbox.interrupt()

    def close(self, now: datetime) -> None:
        """Write the last counts."""
        self._flush()

    # ── one batch ──

    def store(self, messages: Sequence[Message]) -> None:
        """Store what the messages ask for and acknowledge or hold them; after an error, have them delivered again."""
        self._fresh.received += len(messages)
        self._open = {id(message): message for message in messages}
        try:
            for part in self._note.parts(messages):
                if done := self._store_all(part):
                    self._end(done)
                    self._count_lag([message for message, _ in done])
        except Exception as error:
            self._store_failed = isinstance(error, StoreError)
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

    def _end(self, done: Stored) -> None:
        """Acknowledge messages whose rows are stored, or hold them until the work is done."""
        if self._follower is not None:
            for message, tasks in done:
                self._follower.take(message, tasks)
                self._settled([message])
            return
        messages = [message for message, _ in done]
        self._inbox.acknowledge(messages)
        self._settled(messages)
        events = self._queue.events
        if events.wanted(MessageHandled):
            for message, tasks in done:
                events.send(MessageHandled(self._inbox.name, message.message_id, tuple(tasks)))

    def _store_all(self, messages: Sequence[Message]) -> Stored:
        """Return the messages whose rows are stored, with the rows; the others have been rejected or released."""
        done: Stored = []
        to_add: dict[str, list[tuple[Message, AddTasks]]] = {}
        to_apply: list[tuple[Message, FindTask | SendSignal | CancelTask]] = []
        for message in messages:
            try:
                request = self._read(message)
            except BadInput as error:
                self._reject(message, error)
                continue
            if isinstance(request, AddTasks) and not request.additions:
                done.append((message, []))
            elif isinstance(request, AddTasks):
                to_add.setdefault(request.pipeline, []).append((message, request))
            else:
                to_apply.append((message, request))
        for pipeline, items in to_add.items():
            done += self._add(pipeline, items)
        for message, about_task in to_apply:  # the tasks may be those of the same batch
            try:
                if (tasks := self._apply(message, about_task)) is not None:
                    done.append((message, tasks))
            except (BadInput, IllegalMove) as error:
                self._reject(message, error)
        return done

    def _read(self, message: Message) -> Request:
        with self._note.during(message):
            self._reading = monotonic(), message
            try:
                return check_request(self._inbox.read(message))
            except BadInput:
                raise
            except BaseException as error:  # the user's own reading function, which may also exit
                if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                    raise
                raise BadMessage(f"could not be read: {type(error).__name__}: {text_of(error)}") from error
            finally:
                self._reading = None

    def hung(self) -> str:
        """Say that a function that reads a message has not returned for long; '' if none has. From any thread."""
        if (reading := self._reading) is None or monotonic() - reading[0] < _LONGEST_READ:
            return ""
        since, message = reading
        return (
            f"its reading function has not returned for {monotonic() - since:.0f} s from message {message.message_id}"
        )

    def report_hung(self) -> None:
        """Send an event if a function that reads a message has not returned for long; called from another thread."""
        if not self.error and (problem := self.hung()):
            self.error = problem
            self._queue.events.send(InboxUnreachable(self._inbox.name, problem))

    def _apply(self, message: Message, request: FindTask | SendSignal | CancelTask) -> list[Task] | None:
        """Carry out a request about an existing task; return the task whose work is asked for; None: asked too early."""
        queue, counts = self._queue, self._fresh
        try:
            task = queue.get(request.task_id)
        except UnknownName as error:
            # Perhaps the message has overtaken the row.
            if message.deliveries >= _DELIVERIES_UNTIL_FOUND:
                raise BadMessage(f"{error} after {message.deliveries} deliveries") from None
            self._release([message], _NOT_FOUND_DELAY * message.deliveries)
            return None
        match request:
            case FindTask():
                self.wake()
                counts.found += 1
                return [task]
            case SendSignal(task_id=task_id, name=name, payload=payload):
                queue.signal(task_id, name, payload, signal_id=message.message_id, by=self._inbox.name)
            case CancelTask(task_id=task_id, written_at=written_at) if not task.ended:
                if written_at is not None and to_millis(written_at) < last_start(task):
                    raise BadMessage(f"the cancel is older than task {task_id}, which was added or replayed since")
                queue.cancel(task_id, by=self._inbox.name)
        counts.found += 1
        return []

    def _add(self, pipeline: str, items: Sequence[tuple[Message, AddTasks]]) -> Stored:
        """Insert the tasks of all messages in one transaction; a message with an invalid one is rejected alone."""
        additions = [
            [
                identified(addition, self._inbox.name, message, number)
                for number, addition in enumerate(request.additions)
            ]
            for message, request in items
        ]
        try:
            tasks = self._build(pipeline, [addition for each in additions for addition in each])
            answers = insert.insert(self._queue.store, tasks, None)
        except (BadInput, RowRefused) as error:
            if len(items) > 1:
                half = len(items) // 2
                return self._add(pipeline, items[:half]) + self._add(pipeline, items[half:])
            self._reject(items[0][0], error)
            return []
        done: Stored = []
        pairs = iter(zip(tasks, answers, strict=True))
        for (message, request), own in zip(items, additions, strict=True):
            try:
                own_pairs = list(islice(pairs, len(own)))
                done.append((message, [self._count_added(message, request, *pair) for pair in own_pairs]))
            except (BadInput, IllegalMove) as error:
                self._reject(message, error)
        return done

    def _build(self, pipeline: str, additions: Sequence[Addition]) -> list[Task]:
        queue = self._queue
        own = queue.pipelines.get(pipeline)
        plan, declared = (plan_of(queue, pipeline), None) if own is None else (own.plan, own.payload_type)
        return insert.new_tasks(queue.store, plan, declared, additions, Addition(), queue.user_id, check_owners=False)

    def _count_added(self, message: Message, request: AddTasks, task: Task, answer: Inserted | Existing) -> Task:
        """Count a stored row; return the task as it is now."""
        counts = self._fresh
        if isinstance(answer, Inserted):
            counts.added += 1
            self._queue.events.send(TaskAdded(answer.task))
            return answer.task
        stored = insert.own(task, answer)
        same_id = stored.task_id == task.task_id
        if same_id and stored.metadata.get(MESSAGE) == task.metadata.get(MESSAGE):
            counts.duplicate += 1
        elif not same_id or not stored.ended or request.if_ended == "leave":
            counts.found += 1
        elif request.if_ended == "reject":
            raise BadMessage(f"task {stored.task_id} is already {stored.status}", fix="set force to run it again")
        elif is_replayed(stored, message):
            counts.duplicate += 1
        else:
            stored = self._queue.replay(stored.task_id, by=self._inbox.name, note=note_of(message))
            counts.found += 1
        return stored

    def _reject(self, message: Message, error: OnerowError) -> None:
        reason = self._queue.masker.text(with_fix(error))
        self._inbox.reject(message, reason)
        self._settled([message])
        self._fresh.rejected += 1
        self._queue.events.send(MessageRejected(self._inbox.name, message.message_id, reason))

    # ── counts and outages ──

    def _count_lag(self, done: Sequence[Message]) -> None:
        sent = [message.sent_at for message in done if message.sent_at is not None]
        if sent:
            lag = self._queue.store.now() - min(sent)
            self._fresh.lag = max(self._fresh.lag, int(lag.total_seconds() * 1000))

    def _unreachable(self, error: InboxUnavailable) -> float:
        if not self.error:
            self._queue.events.send(InboxUnreachable(self._inbox.name, str(error)))
        self.error = str(error)
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        return pause

    def _flush_if_due(self) -> None:
        if monotonic() >= self._flush_at:
            self._flush()

    def _flush(self) -> None:
        store = self._queue.store
        now = store.now()
        self._flush_at = monotonic() + _FLUSH_EVERY
        with self._gathering:
            refused, self._refused = self._refused, 0
        if refused:
            self._fresh.refused += refused
            self._queue.events.send(SignaturesRefused(self._inbox.name, refused))
        if self._fresh != InboxCounts():
            fresh, self._fresh = self._fresh, InboxCounts()
            write_counts(store, self._inbox.name, self._worker, fresh, now)
        if monotonic() >= self._clear_at:
            self._clear_at = monotonic() + _CLEAR_EVERY
            drop_old_counts(store, now)
