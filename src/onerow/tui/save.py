"""Saving the log of a task to a file."""

import os
from pathlib import Path
from typing import TextIO

from onerow.core.errors import BadInput
from onerow.engine.queue import task_log
from onerow.engine.queue.queue import Queue
from onerow.ports import LogLine


def save_log(queue: Queue, task_id: str, path: str) -> str:
    """Write the whole log of a task to a new file, which only its owner can read; return what was written."""
    try:
        target = Path(path).expanduser()
        with open(target, "x", encoding="utf-8", errors="backslashreplace", opener=_private) as file:
            try:
                count = _write(queue, task_id, file)
            except BaseException:
                target.unlink()
                raise
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of a user without a home
        raise BadInput(f"not saved: {error}", field="path") from error
    return f"wrote {count:,} lines to {target}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write(queue: Queue, task_id: str, file: TextIO) -> int:
    count = 0
    for line in task_log.read(queue, task_id):
        if isinstance(line, LogLine):
            file.write(f"{line.at:%Y-%m-%dT%H:%M:%S}Z {line.phase}#{line.attempt} {line.level} {line.text}\n")
            count += 1
        else:
            file.write(f"… {line.lines:,} lines are gone\n")
    return count
