"""Saving the log of a task to a file."""

from pathlib import Path

from onerow.engine.queue import task_log
from onerow.engine.queue.queue import Queue
from onerow.ports import LogLine


def save_log(queue: Queue, task_id: str, path: Path) -> str:
    """Write the whole log of a task to a new file; return what was written. Raise OSError if the file exists."""
    target = path.expanduser()
    count = 0
    with target.open("x", encoding="utf-8", errors="backslashreplace") as file:
        for line in task_log.read(queue, task_id):
            if isinstance(line, LogLine):
                file.write(f"{line.at:%Y-%m-%dT%H:%M:%S}Z {line.phase}#{line.attempt} {line.level} {line.text}\n")
                count += 1
            else:
                file.write(f"… {line.lines:,} lines are gone\n")
    return f"wrote {count:,} lines to {target}"
