"""Send the events of ended tasks to a webhook, each at least once, from a cursor in the store.

One worker at a time holds the cursor. It reads tasks in the order of their end, sends an event for each, and then moves
the cursor. A crash between the two repeats an event, with the same id; it loses none.
"""

from collections import OrderedDict
from datetime import datetime, timedelta
from time import monotonic

import msgspec

from onerow.core.ends import End, ends_of, may_be_unseen
from onerow.core.filters import Filter
from onerow.core.status import ENDS
from onerow.core.task import Task
from onerow.core.times import read, since_epoch, spell
from onerow.engine.control import notes
from onerow.engine.control.event_webhooks import EventWebhook, NotTaken, event_body, event_id
from onerow.engine.events.events import Events, WebhookFailed
from onerow.engine.events.hooks import Guard
from onerow.engine.queue.queue import Queue
from onerow.ports import Note

WEBHOOK = "webhook"
_LOOK_EVERY = 1.0
_HELD_FOR = timedelta(seconds=15)
# A commit may become visible after later ones, so rows are read again for some time after their end.
_OVERLAP = timedelta(seconds=30)
_OVERLAP_EVERY = 10.0
_NO_TIME = timedelta(0)
_PAGE = 200
_REMEMBERED = 20_000
_GAP = 60.0  # seconds without a look; ends that were undone in such a time are sent when the task ends again
_MOST_GAPS = 20
_LONGEST_WAIT = 300.0
_MOST_REFUSALS = 10


class Cursor(msgspec.Struct, omit_defaults=True):
    """What the store keeps: all ends up to `until` are sent; who sends now, and the gaps in which none did."""

    until: str
    holder: str = ""
    held_until: str = ""
    looked_at: str = ""
    gaps: list[tuple[str, str]] = []


class _NotHeld(Exception):
    """Another worker holds the cursor now."""


class WebhookSender:
    """Sends the events of one webhook, in its own thread, so that a slow receiver delays nothing else."""

    def __init__(self, queue: Queue, webhook: EventWebhook, events: Events, worker: str) -> None:
        self._queue = queue
        self._store = queue.store
        self._webhook = webhook
        self._events = events
        self._worker = worker
        self.guard = Guard(f"webhook {webhook.name}", webhook.timeout * 2)
        self._sent: OrderedDict[str, None] = OrderedDict()
        self._tries = 0
        self._refusals: tuple[str, int] = ("", 0)
        self._renew_at = self._overlap_at = 0.0
        self._note: Note | None = None
        self._cursor = Cursor("")

    def tick(self, now: datetime) -> float:
        """Send what is new if this worker holds the cursor; return the seconds until the next look."""
        if not self._hold(now):
            return _LOOK_EVERY * 3
        try:
            self._send_new()
        except NotTaken as error:
            self._tries += 1
            wait = min(2.0**self._tries, _LONGEST_WAIT)
            self._events.send(WebhookFailed(self._webhook.name, str(error), wait))
            self._renew()
            return wait
        except _NotHeld:
            return _LOOK_EVERY
        self._tries = 0
        return _LOOK_EVERY

    def close(self, now: datetime) -> None:
        """Let another worker take the cursor at once."""
        if self._note is not None and self._cursor.holder == self._worker:
            self._cursor.holder = self._cursor.held_until = ""
            self._write()

    def _hold(self, now: datetime) -> bool:
        """Take or renew the cursor; return whether this worker holds it."""
        if self._note is not None and monotonic() < self._renew_at and self._cursor.holder == self._worker:
            return True
        self._note = notes.find(self._store, WEBHOOK, self._webhook.name)
        if self._note is None:
            self._note = Note(WEBHOOK, self._webhook.name, None)
            self._cursor = Cursor(until=spell(now))  # events from now on
        else:
            self._cursor = msgspec.convert(self._note.body, Cursor)
        held = self._cursor
        if held.holder not in ("", self._worker) and read(held.held_until) > now:
            return False
        looked_at = read(held.looked_at) if held.looked_at else read(held.until)
        if (now - looked_at).total_seconds() > _GAP:
            held.gaps = [*held.gaps, (spell(looked_at), spell(now))][-_MOST_GAPS:]
        if held.holder != self._worker:
            self._overlap_at = 0.0  # what the last holder had sent after its last write is not known
        held.holder, held.held_until, held.looked_at = self._worker, spell(now + _HELD_FOR), spell(now)
        return self._write()

    def _write(self) -> bool:
        assert self._note is not None
        body = msgspec.to_builtins(self._cursor)
        written = notes.swap(self._store, Note(WEBHOOK, self._webhook.name, body, self._note.version))
        if written:
            self._note = Note(WEBHOOK, self._webhook.name, body, self._note.version + 1)
            self._renew_at = monotonic() + _HELD_FOR.total_seconds() / 3
        else:
            self._note = None  # another worker took it
        return written

    def _send_new(self) -> None:
        """Send the ends since the cursor; every some seconds, look for those that became visible late as well."""
        overlap = _NO_TIME
        if monotonic() >= self._overlap_at:
            self._overlap_at = monotonic() + _OVERLAP_EVERY
            overlap = _OVERLAP
        where = Filter(statuses=ENDS, ended_after=read(self._cursor.until) - overlap)
        after: str | None = None
        while True:
            page = self._store.find(where, limit=_PAGE, order="ended", after=after)
            moved = False
            for task in page.tasks:
                self._send_ends(task)
                if task.completed_at is not None and (at := spell(task.completed_at)) > self._cursor.until:
                    self._cursor.until, moved = at, True
            if moved:
                self._renew()
            if page.next is None:
                return
            after = page.next

    def _renew(self) -> None:
        now = self._store.now()
        self._cursor.looked_at, self._cursor.held_until = spell(now), spell(now + _HELD_FOR)
        if not self._write():
            raise _NotHeld

    def _send_ends(self, task: Task) -> None:
        webhook = self._webhook
        if webhook.pipelines and task.pipeline not in webhook.pipelines:
            return
        gaps = [(read(since), read(until)) for since, until in self._cursor.gaps]
        for end in ends_of(task):
            name = event_id(task, end)
            if end.status in webhook.events and name not in self._sent and may_be_unseen(end, gaps, _GAP):
                if monotonic() >= self._renew_at:
                    self._renew()
                self._send(task, end, name)
                self._sent[name] = None
                if len(self._sent) > _REMEMBERED:
                    self._sent.popitem(last=False)

    def _send(self, task: Task, end: End, name: str) -> None:
        body = event_body(task, end, self._queue.masker, results=self._webhook.results)
        try:
            with self.guard:
                self._webhook.send(name, body, since_epoch(self._store.now()) // 1000)
        except NotTaken as error:
            if not error.refused:
                raise
            refused, count = self._refusals
            self._refusals = (name, count + 1 if refused == name else 1)
            if self._refusals[1] < _MOST_REFUSALS:
                raise
            # The receiver refuses this one event; without this it would never get the ones behind it.
            self._events.send(WebhookFailed(self._webhook.name, f"{error}; event {name} is skipped", 0.0))
