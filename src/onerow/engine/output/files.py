"""Log files, one per attempt, in addition to the store: job-<task_id>-<YYYYMMDD-HHMMSS>.log, mode 0640."""

import os
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from onerow.ports import LogLine

_MODE = 0o640
_LONGEST_ID = 150
_NAME = re.compile(r"job-(.+)-\d{8}-\d{6}(?:-\d+)?\.log")


class Writing(Protocol):
    """The output of an attempt: when it began, and its file once created."""

    began: datetime | None
    file: str | None


class LogFiles:
    """The log files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, output: Writing, lines: Sequence[LogLine]) -> None:
        """Append lines to the attempt's file; create it for the first ones."""
        if not lines:
            return
        text = "".join(
            [f"{line.at:%H:%M:%S}.{line.at.microsecond // 1000:03d} {line.level:<7} {line.text}\n" for line in lines]
        )
        if output.file is None:
            output.file = self.create(lines[0].task_id, output.began or lines[0].at)
        descriptor = os.open(output.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, _MODE)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)

    def create(self, task_id: str, began: datetime) -> str:
        """Create an attempt's file, under a name that no other attempt has; return its absolute path."""
        self._folder.mkdir(parents=True, exist_ok=True)
        stem = f"job-{safe_name(task_id)}-{began:%Y%m%d-%H%M%S}"
        for number in range(1, 10_000):
            path = self._folder / (f"{stem}.log" if number == 1 else f"{stem}-{number}.log")
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
            except FileExistsError:
                continue  # another attempt in the same second
            os.fchmod(descriptor, _MODE)  # independent of the umask
            os.close(descriptor)
            return str(path)
        raise FileExistsError(f"{stem}.log, and ten thousand like it")

    def remove(self, task_ids: Iterable[str]) -> int:
        """Delete the files of these tasks; return how many."""
        names = {safe_name(task_id) for task_id in task_ids}
        removed = 0
        if names and self._folder.is_dir():
            for path in self._folder.iterdir():
                found = _NAME.fullmatch(path.name)
                if found and found[1] in names:
                    path.unlink(missing_ok=True)
                    removed += 1
        return removed


def safe_name(task_id: str) -> str:
    """Return a task id as a unique part of a file name, with a bounded length and without path separators."""
    safe = quote(task_id, safe="")
    if len(safe) > _LONGEST_ID:
        safe = f"{safe[:_LONGEST_ID]}~{sha256(task_id.encode()).hexdigest()[:16]}"
    return safe
