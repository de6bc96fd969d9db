"""A proxy in front of moto's S3 that can withhold the answer to one request, so that a test can kill who waits for it,
or refuse requests as S3 does when there are too many."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class S3Shim:
    """hang_on: a method and a part of the path; the next such request is carried out, and never answered.
    refuse: such requests are answered with 503 and not carried out.
    """

    def __init__(self, endpoint: str) -> None:
        self.hang_on: tuple[str, str] | None = None
        self.refuse: tuple[str, str] | None = None
        self.hung = threading.Event()
        self.requests: list[tuple[str, str]] = []
        self._over = threading.Event()
        shim, host = self, urlsplit(endpoint).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if shim.refuse is not None and self.command == shim.refuse[0] and shim.refuse[1] in self.path:
                    self.send_response(503, "Slow Down")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
                upstream = http.client.HTTPConnection(host, timeout=900)
                try:
                    upstream.request(self.command, self.path, body, headers)
                    answer = upstream.getresponse()
                    content = answer.read()
                finally:
                    upstream.close()
                shim.requests.append((self.command, self.path))
                if shim.hang_on is not None and self.command == shim.hang_on[0] and shim.hang_on[1] in self.path:
                    shim.hang_on = None
                    shim.hung.set()
                    shim._over.wait()
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("content-length", "connection", "date", "server", "transfer-encoding"):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def made(self, method: str, part: str) -> int:
        """Return the number of requests with this method and part of the path."""
        return sum(name == method and part in path for name, path in list(self.requests))

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
