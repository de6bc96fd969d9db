"""A long poll that another thread can abandon."""

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from onerow.core.errors import InboxUnavailable
from onerow.core.messages import Message

_LATENESS = 1.0  # seconds by which an answer may come after the wait that was asked for


class Poll:
    """One request in a thread of its own, so that a stop does not wait for its answer.

    wait: the seconds that the server is asked to wait for messages. give_back: called with the messages that arrive
    after the poll was abandoned.
    """

    def __init__(
        self, request: Callable[[], list[Message]], wait: float, give_back: Callable[[list[Message]], None]
    ) -> None:
        self._ends_at = monotonic() + wait + _LATENESS
        self._answered = False
        self._request = request
        self._give_back = give_back
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._abandoned = False
        self._messages: list[Message] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._main, name="onerow-sqs-poll", daemon=True)

    def result(self) -> list[Message]:
        """Wait for the answer and return its messages; none if the poll is abandoned first."""
        self._thread.start()
        self._over.wait()
        with self._lock:
            if self._error is not None:
                raise self._error
            return self._messages

    @property
    def seconds_left(self) -> float:
        """For how long the server may still answer; 0 after its answer."""
        return 0.0 if self._answered else max(0.0, self._ends_at - monotonic())

    def abandon(self) -> None:
        """Make `result` return now."""
        with self._lock:
            self._abandoned = True
        self._over.set()

    def _main(self) -> None:
        messages, failed = [], None
        try:
            messages = self._request()
        except Exception as error:
            failed = error
        self._answered = True
        with self._lock:
            if not self._abandoned:
                self._messages, self._error = messages, failed
                messages = []
        self._over.set()
        if messages:
            with suppress(InboxUnavailable):  # else they are delivered again when they are no longer hidden
                self._give_back(messages)
