"""The decision over HTTP: JSON for KEDA's metrics-api at /scale, a gauge for Prometheus at /metrics."""

import hmac
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from time import monotonic
from urllib.parse import unquote, urlsplit

from onerow.core.errors import OnerowError, UnknownName
from onerow.core.scaling import Decision, ScaleState
from onerow.engine.worker.http_server import LocalHttpServer

_FRESH_FOR = 2.0  # seconds; several clients that poll cause one read of the store


class ScaleAnswers:
    """The newest decision for all phases and for each pipeline that was asked for. Thread-safe.

    make: returns the decision for a pipeline ('' for all phases) and a state. The state stays in this process.
    """

    def __init__(self, make: Callable[[str, ScaleState], Decision]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Decision]] = {}

    def decision(self, pipeline: str = "") -> Decision:
        """Return a decision that is at most two seconds old."""
        with self._lock:
            known = self._known.get(pipeline)
            if known is not None and monotonic() - known[0] < _FRESH_FOR:
                return known[1]
            found = self._make(pipeline, ScaleState() if known is None else known[1].state)
            self._known[pipeline] = (monotonic(), found)
            return found


def metrics(decision: Decision) -> str:
    """Return the decision as Prometheus text."""
    signal = decision.signal
    gauges = [
        ("onerow_desired_workers", "Workers that the work needs.", decision.workers),
        ("onerow_scale_workers", "Live workers that do not drain.", signal.count),
        ("onerow_scale_busy_workers", "Workers that hold leases.", signal.busy),
        ("onerow_scale_running", "Leases.", signal.running),
        ("onerow_scale_runnable", "Waiting tasks that could run now, counted up to a bound.", signal.runnable),
    ]
    return "".join(f"# HELP {name} {text}\n# TYPE {name} gauge\n{name} {value}\n" for name, text, value in gauges)


def make_server(host: str, port: int, answers: ScaleAnswers, token: str = "") -> LocalHttpServer:
    """Return a server that answers GET /scale, /scale/PIPELINE, /metrics and /healthz; with a token, only its bearers."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path == "/healthz":
                self._send(200, "text/plain", "ok\n")
            elif token and not hmac.compare_digest(self._bearer().encode(), token.encode()):
                self._send(401, "text/plain", "a bearer token is needed\n", {"WWW-Authenticate": "Bearer"})
            else:
                self._answer(path)

        def _answer(self, path: str) -> None:
            try:
                if path == "/metrics":
                    self._send(200, "text/plain; version=0.0.4; charset=utf-8", metrics(answers.decision()))
                elif path == "/scale" or path.startswith("/scale/"):
                    found = answers.decision(unquote(path.removeprefix("/scale").strip("/"))).answer()
                    self._send(200, "application/json", json.dumps(found, ensure_ascii=False) + "\n")
                else:
                    self._send(404, "text/plain", "there are /scale, /scale/PIPELINE, /metrics and /healthz\n")
            except UnknownName as error:
                self._send(404, "text/plain", f"{error}\n")
            except OnerowError as error:  # no number: KEDA then keeps the workers that there are
                self._send(503, "text/plain", f"{error}\n")

        def _bearer(self) -> str:
            scheme, _, value = self.headers.get("Authorization", "").partition(" ")
            return value.strip() if scheme.lower() == "bearer" else ""

        def _send(self, code: int, kind: str, text: str, headers: dict[str, str] | None = None) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def version_string(self) -> str:
            return "onerow"

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing: a request every few seconds is no event."""

    return LocalHttpServer(host, port, Handler)
