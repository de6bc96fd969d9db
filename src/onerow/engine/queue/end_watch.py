"""Waiting for the end of tasks: one thread per process looks for all waiting callers, in one query.

The store's waker makes it look at once. On SQLite every commit of another process wakes; on the other stores, and within
one process, only the transitions of core.wakeups do. Therefore it also looks by itself: after a twentieth of the time
waited so far, at least every 250 ms.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep

from onerow.core.errors import OnerowError, StoreError, StoreUnavailable
from onerow.core.task import Task
from onerow.ports import Store, Waker

Tell = Callable[[Task | OnerowError | None], None]
"""Called with the ended task, with None if it was removed, or with an error of the store."""

_SHARE = 0.05
_SHORTEST, _LONGEST = 0.01, 0.25  # seconds between two looks
_MIN_INTERVAL = 0.005  # between two looks for wake-ups
_IDLE_FOR = 1.0  # seconds that the thread, and its connection, outlive the last waiting caller


class EndWatch:
    """Tells callers when tasks have ended. Thread-safe; its thread runs only while a caller waits."""

    def __init__(self, store_of: Callable[[], Store]) -> None:
        self._store_of = store_of
        self._lock = threading.Lock()
        self._waiting: dict[Tell, str] = {}
        self._since = 0.0  # monotonic time of the last `add`
        self._thread: threading.Thread | None = None
        self._waker: Waker | None = None
        self._closed = False

    def add(self, task_id: str, tell: Tell) -> None:
        """Call `tell` once, in another thread, when the task has ended."""
        with self._lock:
            self._closed = False
            self._waiting[tell] = task_id
            self._since = monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="onerow-wait", daemon=True)
                self._thread.start()
            elif self._waker is not None:
                self._waker.poke()

    def remove(self, tell: Tell) -> None:
        """Forget a caller that does not wait any more."""
        with self._lock:
            self._waiting.pop(tell, None)

    def close(self) -> None:
        """End the thread, unless callers wait."""
        with self._lock:
            self._closed = True
            thread = self._thread
            if self._waker is not None:
                self._waker.poke()
            busy = bool(self._waiting)
        if thread is not None and not busy:
            thread.join()

    def _run(self) -> None:
        waker: Waker | None = None
        try:
            idle_since = monotonic()
            while True:
                if waker is None:
                    waker = self._open_waker()
                if self._look():
                    idle_since = monotonic()
                with self._lock:
                    idle = not self._waiting
                    if idle and (self._closed or monotonic() - idle_since >= _IDLE_FOR):
                        self._thread = self._waker = None
                        return
                    waited = monotonic() - self._since
                pause = min(_LONGEST, max(_SHORTEST, _SHARE * waited))
                if waker is None:
                    sleep(pause)
                    continue
                try:
                    if waker.wait(pause):
                        sleep(_MIN_INTERVAL)
                except StoreError:
                    sleep(pause)  # the next look reports what concerns the callers
        finally:
            if waker is not None:
                waker.close()

    def _open_waker(self) -> Waker | None:
        try:
            waker = self._store_of().waker()
        except StoreError:
            return None  # looking by itself is enough until the store is available
        with self._lock:
            self._waker = waker
        return waker

    def _look(self) -> bool:
        """Tell those whose task has ended; return whether a caller waits."""
        with self._lock:
            waiting = dict(self._waiting)
        if not waiting:
            return False
        answers: dict[str, Task | OnerowError | None]
        try:
            tasks = {task.task_id: task for task in self._store_of().fetch(list(set(waiting.values())))}
            answers = {task_id: tasks.get(task_id) for task_id in waiting.values()}
        except StoreUnavailable:
            return True  # it may be back before the callers give up
        except OnerowError as error:
            answers = dict.fromkeys(waiting.values(), error)
        for tell, task_id in waiting.items():
            answer = answers[task_id]
            if not isinstance(answer, Task) or answer.ended:
                self.remove(tell)
                with suppress(RuntimeError):  # the event loop of an async caller was closed
                    tell(answer)
        return True
