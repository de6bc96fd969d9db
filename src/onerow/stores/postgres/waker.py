"""Waking when someone has added or freed work: LISTEN on a connection of its own, which heals by itself.

A notification that is lost costs the caller's timeout and nothing else. Where nothing can be heard (behind a pooler,
while the server is away) the timeout is all there is.
"""

import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from onerow.core.errors import StoreError
from onerow.stores.postgres.connections import Connection
from onerow.stores.postgres.statements import quoted

_SOONEST, _LATEST = 0.2, 10.0


class PostgresWaker:
    """Rests until the server notifies, or someone in this process pokes."""

    def __init__(
        self, connect: Callable[[], Connection] | None, channel: str, forget: Callable[["PostgresWaker"], None]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._forget = forget
        self._poked, self._poker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._healer: threading.Thread | None = None
        self._closed = False
        if connect is not None:
            try:
                self._connection = self._listen(connect)
            except StoreError:
                self._heal()

    @property
    def hears(self) -> bool:
        """Whether it is connected, so that it wakes before its timeout."""
        return self._connection is not None

    def wait(self, timeout: float) -> bool:
        """See ports.Waker."""
        until = time.monotonic() + timeout
        while True:
            connection = self._connection
            watched = [self._poked] if connection is None else [self._poked, connection.fileno()]
            ready, _, _ = select.select(watched, [], [], max(0.0, until - time.monotonic()))
            if self._poked in ready:
                _drain(self._poked)
                return True
            if not ready:
                return False
            if connection is not None and self._heard(connection):
                return True

    def poke(self) -> None:
        """See ports.Waker."""
        with suppress(OSError):  # already poked, or closed
            os.write(self._poker, b"!")

    def close(self) -> None:
        self._forget(self)
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        for descriptor in (self._poked, self._poker):
            os.close(descriptor)
        self._poked = self._poker = -1

    def _heard(self, connection: Connection) -> bool:
        """Take in what the server sent; a connection that ended is replaced, and counts as news."""
        try:
            connection.pgconn.consume_input()
            heard = False
            while connection.pgconn.notifies() is not None:
                heard = True
            return heard
        except psycopg.Error:
            with self._lock:
                self._connection = None
            connection.close()
            self._heal()
            return True  # until we listen again, better look once too often

    def _listen(self, connect: Callable[[], Connection]) -> Connection:
        connection = connect()
        try:
            connection.execute(f"LISTEN {quoted(self._channel)}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _heal(self) -> None:
        self._healer = threading.Thread(target=self._reconnect, name="onerow-listen", daemon=True)
        self._healer.start()

    def _reconnect(self) -> None:
        """Try until it listens again, then wake: what was sent meanwhile was not heard."""
        rest = _SOONEST
        while not self._closed and self._connect is not None:
            try:
                self._begin(self._listen(self._connect))
                return
            except (StoreError, psycopg.Error):
                time.sleep(rest)
                rest = min(2 * rest, _LATEST)

    def _begin(self, connection: Connection) -> None:
        with self._lock:
            if self._closed:
                connection.close()
            else:
                self._connection = connection
                self.poke()


def _drain(descriptor: int) -> None:
    with suppress(BlockingIOError):
        while os.read(descriptor, 65536):
            pass
