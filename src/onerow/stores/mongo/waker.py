"""Wakes the workers of other processes by a counter: one small document, which a write that wakes them increments.

On a replica set a change stream reports the new counter, and also inserts, which may come from a caller's transaction.
Else the counter is polled: every few milliseconds after a change, and less often the longer nothing changes.
"""

import contextlib
import threading
import time
from collections.abc import Callable

from pymongo import WriteConcern, timeout
from pymongo.change_stream import ChangeStream
from pymongo.errors import OperationFailure, PyMongoError

from onerow.core.errors import StoreError
from onerow.stores.mongo.connections import Collections, Connections
from onerow.stores.mongo.documents import Document

_MIN_POLL, _MAX_POLL, _BACKOFF = 0.003, 0.03, 1.06
_MIN_INTERVAL = 0.004
_FLUSH_TIMEOUT = 0.5
_STREAM_WAIT_MS = 1_000
_REOPEN_AFTER = (0.1, 5.0)
_NO_STREAMS = frozenset({40573, 59, 40324, 115, 20, 13})  # not supported here, or not allowed to this user
_UNACKNOWLEDGED = WriteConcern(w=0)

_COUNTER = "bell"  # the id of the counter


class WakeCounter:
    """Increments the counter of wake-ups. Writes are unacknowledged: a lost one only delays a worker.

    The first increment is written at once; frequent ones are combined, one every few milliseconds and one at the end.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._incremented_at = 0.0
        self._pending = False
        self._timer: threading.Timer | None = None

    def increment(self, collections: Collections) -> None:
        with self._lock:
            if self._pending:
                return
            if time.monotonic() - self._incremented_at < _MIN_INTERVAL:
                self._pending = True
                self._timer = threading.Timer(_MIN_INTERVAL, self._flush)
                self._timer.daemon = True
                self._timer.start()
                return
            self._incremented_at = time.monotonic()
        self._increment(collections)

    def close(self) -> None:
        """Write a pending increment; the timeout keeps an unavailable server from blocking close()."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join(_FLUSH_TIMEOUT)
            if self._pending:
                with timeout(_FLUSH_TIMEOUT):
                    self._flush()

    def _flush(self) -> None:
        with self._lock:
            self._pending = False
            self._incremented_at = time.monotonic()
        with contextlib.suppress(StoreError), self._connections.open() as collections:
            self._increment(collections)

    def _increment(self, collections: Collections) -> None:
        with contextlib.suppress(PyMongoError):
            meta = collections.meta.with_options(write_concern=_UNACKNOWLEDGED)
            meta.update_one({"_id": _COUNTER}, {"$inc": {"rung": 1}}, upsert=True)


class MongoWaker:
    """Waits until the store may have changed or this process calls `poke`."""

    def __init__(self, connections: Connections, forget: Callable[["MongoWaker"], None]) -> None:
        self._connections = connections
        self._forget = forget
        self._poked = threading.Event()
        self._closed = threading.Event()
        self._seen: int | None = None
        self._pause = _MIN_POLL
        self._stream = _Stream(connections, self._poked.set, self._closed)
        if not self._stream.runs:
            self._poll()

    def wait(self, timeout: float) -> bool:
        """See ports.Waker."""
        if self._stream.runs:
            return self._was_poked(timeout)
        until = time.monotonic() + timeout
        while True:
            if self._was_poked(0) or self._poll():
                self._pause = _MIN_POLL
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            if self._was_poked(min(left, self._pause)):
                self._pause = _MIN_POLL
                return True
            self._pause = min(self._pause * _BACKOFF, _MAX_POLL)

    def poke(self) -> None:
        """See ports.Waker."""
        self._poked.set()

    def close(self) -> None:
        self._closed.set()
        self._poked.set()
        self._forget(self)

    def _was_poked(self, timeout: float) -> bool:
        if not self._poked.wait(timeout):
            return False
        self._poked.clear()
        return True

    def _poll(self) -> bool:
        """Whether the counter changed since the last poll; False if the store is unavailable."""
        try:
            with self._connections.open() as collections:
                found = collections.meta.find_one({"_id": _COUNTER}) or {"rung": 0}
        except StoreError:
            self._pause = _MAX_POLL
            return False
        count = int(found["rung"])
        changed = self._seen is not None and count != self._seen
        self._seen = count
        return changed


class _Stream:
    """A change stream, read by its own thread, which reopens it after errors."""

    def __init__(self, connections: Connections, notify: Callable[[], None], closed: threading.Event) -> None:
        self._connections = connections
        self._notify = notify
        self._closed = closed
        with connections.open() as collections:
            self.runs = collections.has_members
        if self.runs:
            first = None
            with contextlib.suppress(PyMongoError):  # the thread tries again
                first = self._open()
            threading.Thread(target=self._run, args=(first,), name="onerow-mongo-waker", daemon=True).start()

    def _open(self) -> ChangeStream[Document]:
        collections = self._connections.collections()
        events = [
            {"ns.coll": collections.tasks.name, "operationType": "insert"},
            {"ns.coll": collections.meta.name, "documentKey._id": _COUNTER},
        ]
        pipeline: list[Document] = [{"$match": {"$or": events}}, {"$project": {"_id": 1}}]
        return collections.database.watch(pipeline, max_await_time_ms=_STREAM_WAIT_MS)

    def _run(self, opened: ChangeStream[Document] | None) -> None:
        pause = _REOPEN_AFTER[0]
        while not self._closed.is_set():
            try:
                if opened is None:
                    opened = self._open()
                    self._notify()  # there may have been changes while it was not open
                with opened as stream:
                    opened = None
                    pause = _REOPEN_AFTER[0]
                    while not self._closed.is_set() and stream.alive:
                        if stream.try_next() is not None:
                            self._notify()
            except OperationFailure as error:
                if error.code in _NO_STREAMS:
                    self.runs = False
                    self._notify()
                    return
                self._sleep(pause)
            except PyMongoError:
                self._sleep(pause)
            pause = min(pause * 2, _REOPEN_AFTER[1])

    def _sleep(self, pause: float) -> None:
        self._closed.wait(pause)
