"""Liveness and readiness of a worker, for probes: true only while its processes really claim."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

from onerow.engine.worker.counters import Counters, metrics_text
from onerow.engine.worker.http_server import LocalHttpServer

LIVE_WITHOUT_CLAIM = 300.0
"""Seconds for which a worker that can't claim still counts as alive: a restart does not bring a store back sooner."""
SILENT_FOR = 5.0
"""Seconds after the last sign of life, of which there are two a second, from which on a process counts as frozen."""
_START = 120.0  # seconds for the first process to become ready


class WorkerHealth(NamedTuple):
    """One worker process."""

    pid: int
    ready: bool
    running: int
    draining: bool  # it claims no more: it is replaced, not needed, or an operator asked for it
    overdue: float  # seconds for which it should have claimed, and did not
    silent_for: float = 0.0  # seconds since its last sign of life


class Health(NamedTuple):
    """The worker processes of one supervisor."""

    stopping: bool
    up_for: float  # seconds
    workers: list[WorkerHealth]
    counters: Counters = Counters()

    @property
    def is_ready(self) -> bool:
        """Whether a process claims tasks now."""
        return not self.stopping and any(
            w.ready and not w.draining and w.overdue == 0 and w.silent_for <= SILENT_FOR for w in self.workers
        )

    @property
    def is_live(self) -> bool:
        """Whether a process claims, or did so a short time ago, or this one starts or drains."""
        if self.stopping or (self.up_for < _START and not any(worker.ready for worker in self.workers)):
            return True
        return any(worker.ready and worker.overdue <= LIVE_WITHOUT_CLAIM for worker in self.workers)


def make_server(host: str, port: int, health: Callable[[], Health]) -> LocalHttpServer:
    """Return a server that answers GET /livez (also /healthz) and /readyz with 200 or 503, and /metrics."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            now = health()
            if self.path.partition("?")[0] == "/metrics":
                running = sum(worker.running for worker in now.workers)
                text = metrics_text(now.counters, processes=len(now.workers), running=running)
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", text.encode())
                return
            states = {"/livez": now.is_live, "/healthz": now.is_live, "/readyz": now.is_ready}
            state = states.get(self.path.partition("?")[0])
            shown = {
                "live": now.is_live,
                "ready": now.is_ready,
                "stopping": now.stopping,
                "processes": [
                    {
                        "pid": w.pid,
                        "ready": w.ready,
                        "draining": w.draining,
                        "running": w.running,
                        "overdue_s": round(w.overdue, 1),
                        "silent_s": round(w.silent_for, 1),
                    }
                    for w in now.workers
                ],
            }
            body = json.dumps(shown if state is not None else "there are /livez, /readyz and /metrics").encode() + b"\n"
            self._answer(404 if state is None else 200 if state else 503, "application/json", body)

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def version_string(self) -> str:
            return "onerow"

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing: a probe every few seconds is no event."""

    return LocalHttpServer(host, port, Handler)
