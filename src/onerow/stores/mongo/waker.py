"""Waking when another process has written: by a change stream where the server has one, else by a bell.

The bell is one small document whose number grows when work may have come; reading it by its id is the cheapest question
there is. It is asked every few milliseconds after something happened, and less often the longer nothing does.
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
from onerow.stores.mongo.documents import MARK, Document

_SOONEST, _LATEST, _SLOWER = 0.003, 0.03, 1.06
_RING_EVERY = 0.004
_LAST_RING_FOR = 0.5
_STREAM_WAIT_MS = 1_000
_HEAL_AFTER = (0.1, 5.0)
_NO_STREAMS = frozenset({40573, 59, 40324, 115, 20})
_UNHEARD = WriteConcern(w=0)

_CHANGED = "updateDescription.updatedFields"
_CLEARED = {"$type": "null"}
_NO_CLAIM: Document = {
    f"{_CHANGED}.status": {"$ne": "processing"}
}  # a claim writes null into the slots it doesn't take
_NEWS: list[Document] = [
    {
        "$match": {
            "$or": [
                {"operationType": "insert"},
                # The moves of Move.wakes, as far as an update shows them: a task to claim, unless it was parked, ...
                {f"{_CHANGED}.status": "waiting", f"{_CHANGED}.awaiting": {"$not": {"$type": "string"}}},
                {f"{_CHANGED}.awaiting": _CLEARED},
                {f"{_CHANGED}.run_at": {"$exists": True}, f"{_CHANGED}.awaiting": {"$not": {"$type": "string"}}},
                {f"{_CHANGED}.priority": {"$exists": True}},
                # ... a free slot, a cancel, an ended child (see swapping).
                {f"{_CHANGED}.slot": _CLEARED} | _NO_CLAIM,
                {f"{_CHANGED}.key_slot": _CLEARED} | _NO_CLAIM,
                {f"{_CHANGED}.cancel_requested": True},
                {f"{_CHANGED}.{MARK}": _CLEARED},
            ]
        }
    },
    {"$project": {"_id": 1}},
]


class PollCounter:
    """Rings for those who poll; nobody waits for it, and a ring that is lost costs a moment.

    At once when it was quiet; of many rings in a row, one every few milliseconds and one after the last.
    """

    def __init__(self, door: Connections) -> None:
        self._door = door
        self._lock = threading.Lock()
        self._rung_at = 0.0
        self._pending = False
        self._timer: threading.Timer | None = None

    def ring(self, rooms: Collections) -> None:
        with self._lock:
            if self._pending:
                return
            if time.monotonic() - self._rung_at < _RING_EVERY:
                self._pending = True
                self._timer = threading.Timer(_RING_EVERY, self._ring_last)
                self._timer.daemon = True
                self._timer.start()
                return
            self._rung_at = time.monotonic()
        self._ring(rooms)

    def close(self) -> None:
        """Ring now what was to be rung soon; a server that is away must not hold up who closes the store."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join(_LAST_RING_FOR)
            if self._pending:
                with timeout(_LAST_RING_FOR):
                    self._ring_last()

    def _ring_last(self) -> None:
        with self._lock:
            self._pending = False
            self._rung_at = time.monotonic()
        with contextlib.suppress(StoreError), self._door.open() as rooms:
            self._ring(rooms)

    def _ring(self, rooms: Collections) -> None:
        with contextlib.suppress(PyMongoError):
            bell = rooms.meta.with_options(write_concern=_UNHEARD)
            bell.update_one({"_id": "bell"}, {"$inc": {"rung": 1}}, upsert=True)


class MongoWaker:
    """Rests until something may have changed in the store, or someone in this process pokes."""

    def __init__(self, door: Connections, forget: Callable[["MongoWaker"], None]) -> None:
        self._door = door
        self._forget = forget
        self._poked = threading.Event()
        self._closed = threading.Event()
        self._heard: int | None = None
        self._pause = _SOONEST
        self._stream = _Stream(door, self._poked.set, self._closed)
        if not self._stream.runs:
            self._listen()

    def wait(self, timeout: float) -> bool:
        """See ports.Waker."""
        if self._stream.runs:
            return self._was_poked(timeout)
        until = time.monotonic() + timeout
        while True:
            if self._was_poked(0) or self._listen():
                self._pause = _SOONEST
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            if self._was_poked(min(left, self._pause)):
                self._pause = _SOONEST
                return True
            self._pause = min(self._pause * _SLOWER, _LATEST)

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

    def _listen(self) -> bool:
        """Whether the bell was rung since we last listened; a store that is away is no news."""
        try:
            with self._door.open() as rooms:
                found = rooms.meta.find_one({"_id": "bell"}) or {"rung": 0}
        except StoreError:
            self._pause = _LATEST
            return False
        rung = int(found["rung"])
        news = self._heard is not None and rung != self._heard
        self._heard = rung
        return news


class _Stream:
    """A change stream, read by a thread of its own, which opens it again whenever it dies."""

    def __init__(self, door: Connections, tell: Callable[[], None], closed: threading.Event) -> None:
        self._door = door
        self._tell = tell
        self._closed = closed
        with door.open() as rooms:
            self.runs = rooms.has_members
        if self.runs:
            first = None
            with contextlib.suppress(PyMongoError):  # the thread tries again
                first = self._open()
            threading.Thread(target=self._run, args=(first,), name="onerow-mongo-waker", daemon=True).start()

    def _open(self) -> ChangeStream[Document]:
        return self._door.rooms().tasks.watch(_NEWS, max_await_time_ms=_STREAM_WAIT_MS)

    def _run(self, opened: ChangeStream[Document] | None) -> None:
        pause = _HEAL_AFTER[0]
        while not self._closed.is_set():
            try:
                if opened is None:
                    opened = self._open()
                    self._tell()  # something may have come while it was not open
                with opened as stream:
                    opened = None
                    pause = _HEAL_AFTER[0]
                    while not self._closed.is_set() and stream.alive:
                        if stream.try_next() is not None:
                            self._tell()
            except OperationFailure as error:
                if error.code in _NO_STREAMS:
                    self.runs = False
                    self._tell()
                    return
                self._rest(pause)
            except PyMongoError:
                self._rest(pause)
            pause = min(pause * 2, _HEAL_AFTER[1])

    def _rest(self, pause: float) -> None:
        self._closed.wait(pause)
