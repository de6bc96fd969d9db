"""Writes output of tasks to the logger 'onerow.output' as well, so that it can be seen in the worker's terminal."""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic

from onerow.core.task import Task
from onerow.engine.output.terminal import neutral

log = logging.getLogger("onerow.output")

# Burst and sustained rate of lines, of all tasks together. Further lines are left out here; the task log has them.
BURST = 200
PER_SECOND = 100
_SHORT_ID = 8
_LEVELS = {"debug": logging.DEBUG, "warning": logging.WARNING, "error": logging.ERROR, "critical": logging.CRITICAL}


class Echo:
    """Logs lines in its own thread, so that a slow terminal delays no task."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: deque[tuple[Task, str, str]] = deque()
        self._allowed = float(BURST)
        self._allowed_at = monotonic()
        self._left_out = 0
        self._last_left_out = ""
        self._closing = False
        self._thread = threading.Thread(target=self._main, name="onerow-output", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, within: float = 1.0) -> None:
        """Log what is left, for at most `within` seconds, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(within)

    def put(self, task: Task, level: str, lines: Sequence[str]) -> None:
        """Queue complete, masked lines of a task; never blocks."""
        with self._changed:
            clock = monotonic()
            self._allowed = min(BURST, self._allowed + (clock - self._allowed_at) * PER_SECOND)
            self._allowed_at = clock
            count = max(0, min(len(lines), int(self._allowed), BURST - len(self._lines)))
            self._allowed -= count
            self._lines.extend((task, level, line) for line in lines[:count])
            if count < len(lines):
                self._left_out += len(lines) - count
                self._last_left_out = task.task_id
            self._changed.notify_all()

    def _main(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._closing:
                    self._changed.wait()
                batch, left_out = list(self._lines), self._left_out
                self._lines.clear()
                self._left_out = 0
                closing = self._closing
            for task, level, line in batch:
                _write(task, level, line)
            if left_out:
                log.warning(
                    "… %s lines of output are left out here; read them with: onerow logs %s",
                    f"{left_out:,}",
                    self._last_left_out,
                )
            if closing:
                return


def _write(task: Task, level: str, line: str) -> None:
    fields = {
        "task_id": task.task_id,
        "pipeline": task.pipeline,
        "phase": task.phase,
        "attempt": task.attempt,
        "stream": level,
    }
    log.log(_LEVELS.get(level, logging.INFO), "%s %s", task.task_id[-_SHORT_ID:], neutral(line), extra=fields)
