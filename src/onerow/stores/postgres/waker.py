"""Wakes workers when work is added or freed: LISTEN on a dedicated connection, which reconnects by itself.

A lost notification only delays the caller until its timeout. Without LISTEN (behind a pooler, while the server is down)
a wait ends only by `poke` or by its timeout.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from onerow.core.errors import StoreError
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.statements import quoted
from onerow.stores.shared.waking import WakePipe, readable

_MIN_DELAY, _MAX_DELAY = 0.2, 10.0


class PostgresWaker:
    """Blocks until a notification arrives, `poke` is called, or the timeout ends."""

    def __init__(
        self, connect: Callable[[], Connection] | None, channel: str, forget: Callable[["PostgresWaker"], None]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._forget = forget
        self._pipe = WakePipe()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._reconnector: threading.Thread | None = None
        self._closed = False
        if connect is not None:
            try:
                self._connection = self._listen(connect)
            except StoreError:
                self._start_reconnecting()

    @property
    def hears(self) -> bool:
        """Whether it is connected and receives notifications."""
        return self._connection is not None

    def wait(self, timeout: float) -> bool:
        """See ports.Waker."""
        until = time.monotonic() + timeout
        while True:
            connection = self._connection
            watched: list[Any] = [self._pipe] if connection is None else [self._pipe, connection]
            ready = readable(watched, max(0.0, until - time.monotonic()))
            if self._pipe in ready:
                self._pipe.clear()
                return True
            if not ready:
                return False
            if connection is not None and self._read_notifications(connection):
                return True

    def poke(self) -> None:
        """See ports.Waker."""
        self._pipe.poke()

    def close(self) -> None:
        self._forget(self)
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._pipe.close()

    def _read_notifications(self, connection: Connection) -> bool:
        """Read what the server sent; return whether to wake. A connection that ended is replaced and also wakes."""
        try:
            connection.pgconn.consume_input()
            notified = False
            while connection.pgconn.notifies() is not None:
                notified = True
            return notified
        except psycopg.Error:
            with self._lock:
                self._connection = None
            connection.close()
            self._start_reconnecting()
            return True  # a notification may have been lost

    def _listen(self, connect: Callable[[], Connection]) -> Connection:
        connection = connect()
        try:
            connection.execute(f"LISTEN {quoted(self._channel)}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _start_reconnecting(self) -> None:
        self._reconnector = threading.Thread(target=self._reconnect, name="onerow-listen", daemon=True)
        self._reconnector.start()

    def _reconnect(self) -> None:
        """Retry until connected, then wake: notifications sent in between were lost."""
        delay = _MIN_DELAY
        while not self._closed and self._connect is not None:
            try:
                self._use(self._listen(self._connect))
                return
            except (StoreError, psycopg.Error):
                time.sleep(delay)
                delay = min(2 * delay, _MAX_DELAY)

    def _use(self, connection: Connection) -> None:
        with self._lock:
            if self._closed:
                connection.close()
            else:
                self._connection = connection
                self.poke()
