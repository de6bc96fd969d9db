"""A TCP proxy that knows where messages of PostgreSQL and MongoDB begin, and closes all connections before the n-th."""

import contextlib
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

Length = Callable[[bytes, bool], int | None]
"""The length of the message at the start of the bytes; None: not all of its head is there. True: a client's first."""


def postgres_length(data: bytes, first: bool) -> int | None:
    head = 0 if first else 1  # only the first message of a client has no type
    return None if len(data) < head + 4 else head + int.from_bytes(data[head : head + 4], "big")


def mongo_length(data: bytes, first: bool) -> int | None:
    return None if len(data) < 4 else int.from_bytes(data[:4], "little")


class CuttingProxy:
    """Forwards whole messages in both directions, and counts them."""

    def __init__(self, url: str, default_port: int, length: Length) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or default_port)
        self._length = length
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._cut_at: int | None = None
        self.messages = 0
        self.cuts = 0
        self._start(self._accept)

    def url(self, behind: str) -> str:
        """The URL of a database behind the proxy."""
        parts = urlsplit(behind)
        user = "" if parts.username is None else f"{parts.username}@"
        return parts._replace(netloc=f"{user}{self._address}").geturl()

    def arm(self, number: int | None) -> None:
        """Count from now on, and cut before the message with this number; None: only count."""
        with self._lock:
            self.messages = 0
            self._cut_at = number

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._close_all()
        for thread in self._threads:
            thread.join(900)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.add(end)
            self._start(self._pass_on, client, server, True)
            self._start(self._pass_on, server, client, False)

    def _pass_on(self, source: socket.socket, target: socket.socket, first: bool) -> None:
        waiting = b""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                waiting += data
                while (length := self._length(waiting, first)) is not None and len(waiting) >= length:
                    if self._is_cut():
                        self._close_all()
                        return
                    target.sendall(waiting[:length])
                    waiting, first = waiting[length:], False
        for end in (source, target):
            self._end(end)

    def _is_cut(self) -> bool:
        with self._lock:
            self.messages += 1
            if self.messages != self._cut_at:
                return False
            self._cut_at = None
            self.cuts += 1
            return True

    def _close_all(self) -> None:
        for end in list(self._sockets):
            self._end(end)

    def _end(self, end: socket.socket) -> None:
        self._sockets.discard(end)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
