"""A TCP proxy that cuts connections at a chosen moment."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit


class Proxy:
    """A proxy between clients and a server that forwards everything by default.

    `cut()` closes all connections. `deafen()` forwards requests and drops the answers of the server.
    """

    def __init__(self, url: str, *, host: str = "127.0.0.1") -> None:
        behind = urlsplit(url)
        self._target = (behind.hostname, behind.port or 5432)
        self._listener = socket.create_server((host, 0))
        port = self._listener.getsockname()[1]
        user = "" if behind.username is None else f"{behind.username}@"
        self.url = behind._replace(netloc=f"{user}{host}:{port}").geturl()
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._deaf = False
        self._refuses = False
        self.on_answer: Callable[[bytes], None] = lambda data: None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._pairs)

    def wait_for(self, *, connections: int) -> None:
        give_up = time.monotonic() + 30
        while self.connections != connections:
            assert time.monotonic() < give_up, f"{self.connections} connections, not {connections}"
            time.sleep(0.01)

    def cut(self) -> None:
        """Close all connections, as when a router restarts."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def deafen(self) -> None:
        """Drop all answers from now on; the server still executes all requests."""
        self._deaf = True

    def heal(self) -> None:
        self._deaf = self._refuses = False

    def refuse(self) -> None:
        """Close all connections and refuse new ones until `heal`."""
        self._refuses = True
        self.cut()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses:
                client.close()
                continue
            server = socket.create_connection(self._target)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.append((client, server))
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if not data:
                        raise OSError
                    if key.fileobj is server:
                        self.on_answer(data)
                        if self._deaf:
                            continue
                    key.data.sendall(data)
        for end in (client, server):
            end.close()
        with self._lock, contextlib.suppress(ValueError):
            self._pairs.remove((client, server))
