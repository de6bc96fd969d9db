"""A real HTTP server in a thread, with answers controlled by the test."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar, Self


class Handler(BaseHTTPRequestHandler):
    """Logs nothing, and can close the connection in the middle of an answer."""

    protocol_version = "HTTP/1.1"
    owner: ClassVar["Server"]

    def log_message(self, format: str, *args: object) -> None: ...

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()


class Server:
    """Listens on loopback while the block lasts."""

    handler: type[Handler] = Handler

    def __init__(self) -> None:
        bound = type("Bound", (self.handler,), {"owner": self})
        self._server = _Quiet(("127.0.0.1", 0), bound)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.released = threading.Event()
        """Set to release blocked requests."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of clients that were killed."""
