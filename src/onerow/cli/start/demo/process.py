"""The worker process of the demo, with its supervisor."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from onerow.engine.worker.supervisor import LIFELINE

_STOP_TIMEOUT = 10.0


class DemoProcess:
    """`onerow worker` as a user starts it; its output goes to a file beside the database."""

    def __init__(self, folder: Path, url: str, pace: float) -> None:
        self._folder = folder
        self._url = url
        self._pace = pace
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Start the supervisor, which starts the worker."""
        argv = [sys.executable, "-m", "onerow", "worker", "onerow.cli.start.demo.studio", "--store", self._url]
        environment = {name: value for name, value in os.environ.items() if name != LIFELINE}
        environment |= {"ONEROW_DEMO_PACE": str(self._pace), "PYTHONUNBUFFERED": "1"}
        with open(self._folder / "worker.log", "ab") as log:
            # A new session, so that Ctrl-C reaches only the demo, which then stops the worker.
            self._process = subprocess.Popen(
                [*argv, "--concurrency", "8", "--interval", "0.2s"],
                cwd=self._folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self, pid: int) -> None:
        """Send SIGKILL to a worker."""
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Stop the supervisor, which drains its worker."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        """Return the end of the worker's log."""
        path = self._folder / "worker.log"
        return path.read_text(encoding="utf-8", errors="replace")[-2_000:] if path.exists() else ""
