"""A small HTTP server in a thread, for probes and metrics; on loopback unless another address is given."""

import ipaddress
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from onerow.core.errors import BadInput

LOOPBACK = "127.0.0.1"


def parse_address(text: str, field: str) -> tuple[str, int]:
    """Parse PORT or HOST:PORT; the host of a port alone is the loopback address."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") if colon else LOOPBACK
    if not port.isdecimal() or int(port) > 65_535 or not host:
        raise BadInput(f"{field}: {text!r} is no address", fix="write 8080 or 0.0.0.0:8080", field=field)
    return host, int(port)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class LocalHttpServer:
    """Listens at once; answers from `start` to `close`."""

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Write nothing: a client that hangs up is no error of ours."""

        try:
            self._server = Server((host, port), handler)
        except OSError as error:
            raise BadInput(f"can't listen on {host}:{port}: {error.strerror or error}", field="port") from None
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="onerow HTTP", daemon=True)

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
