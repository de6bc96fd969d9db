"""The demo's processes: a real worker under its supervisor, in a folder of its own, and the means to kill it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from onerow.engine.worker.supervisor import LIFELINE

_PATIENCE = 10.0


class DemoProcess:
    """`onerow worker` as a user would start it; its output goes to a file beside the database."""

    def __init__(self, folder: Path, url: str, pace: float) -> None:
        self._folder = folder
        self._url = url
        self._pace = pace
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Start the supervisor; it starts the worker."""
        argv = [sys.executable, "-m", "onerow", "worker", "onerow.cli.start.demo.studio", "--store", self._url]
        environment = {name: value for name, value in os.environ.items() if name != LIFELINE}
        environment |= {"ONEROW_DEMO_PACE": str(self._pace), "PYTHONUNBUFFERED": "1"}
        with open(self._folder / "worker.log", "ab") as log:
            # A session of its own, so that Ctrl-C reaches the demo alone, and the demo closes the theatre.
            self._process = subprocess.Popen(
                [*argv, "--concurrency", "8", "--interval", "0.2s"],
                cwd=self._folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self, pid: int) -> None:
        """kill -9, really."""
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Ask the supervisor to end; it drains its worker."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """What the worker said, when it could not work."""
        path = self._folder / "worker.log"
        return path.read_text(encoding="utf-8", errors="replace")[-2_000:] if path.exists() else ""
