"""A TCP proxy before the database server that cuts connections, loses answers and delays them."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

_CHUNK = 65536


class Proxy:
    """Listens on a loopback port, in a thread of its own, until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._answers_lost = False
        self._delay = 0.0
        self._server: asyncio.Server | None = None
        self.port = 0
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="soak-proxy", daemon=True)
        self._thread.start()
        ready.wait()

    @classmethod
    def before(cls, url: str) -> tuple["Proxy", str]:
        """Return a proxy before the server of a store URL, and the URL through the proxy."""
        parts = urlsplit(url)
        default = 5432 if parts.scheme.startswith("postgres") else 27017
        proxy = cls(parts.hostname or "127.0.0.1", parts.port or default)
        credentials = parts.netloc.rpartition("@")[0]
        netloc = f"{credentials}@127.0.0.1:{proxy.port}" if credentials else f"127.0.0.1:{proxy.port}"
        return proxy, parts._replace(netloc=netloc).geturl()

    def cut(self) -> None:
        """Reset all connections."""
        self._call(self._abort)

    def lose_answers(self, lost: bool) -> None:
        """Forward requests without their answers; at the end reset all connections."""
        self._answers_lost = lost
        if not lost:
            self.cut()

    def delay_answers(self, seconds: float) -> None:
        """Delay each answer; 0: no more."""
        self._delay = seconds

    def close(self) -> None:
        self._call(self._stop)
        self._thread.join(10)

    def _call(self, function: Callable[[], Any]) -> None:
        self._loop.call_soon_threadsafe(function)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.close()

    def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._abort()
        self._loop.stop()

    def _abort(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, server_writer}
        try:
            await asyncio.gather(
                self._pump(reader, server_writer, answers=False), self._pump(server_reader, writer, answers=True)
            )
        finally:
            for each in (writer, server_writer):
                self._writers.discard(each)
                each.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                if answers and self._delay:
                    await asyncio.sleep(self._delay)
                if answers and self._answers_lost:
                    continue
                target.write(data)
                await target.drain()
        target.close()
