"""status/JOB.json: the state of each job, for programs that only read folders.

status/.open/ names the jobs whose end has not been shown; so a worker that starts later continues. Several workers may
show the same job: each follows it until it has itself shown the end, so the last state that is written is the end.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from onerow.core.corruption import shown
from onerow.core.messages import derived_id
from onerow.core.task import Task
from onerow.inboxes.locks import replace_file

_AT_ONCE = 500  # jobs asked for in one round; more take turns
_LIST_EVERY = 10.0
_LONGEST_NAME = 200


class FolderStatus:
    """The status files of one folder inbox."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = folder / ".open"
        self._shown: dict[str, int] = {}  # version of each followed task that was shown last; the next to ask is first
        self._list_at = 0.0

    def make_folders(self) -> None:
        self._open.mkdir(mode=0o750, parents=True, exist_ok=True)

    def follow(self, task_ids: Iterable[str]) -> None:
        """Show these tasks from now on."""
        for task_id in task_ids:
            replace_file(self._open / file_name(task_id), task_id.encode())
            self._shown.setdefault(task_id, -1)

    def followed(self) -> list[str]:
        """Return the tasks to ask for in this round."""
        if monotonic() >= self._list_at:
            self._list_at = monotonic() + _LIST_EVERY
            self._read_open()
        return [task_id for task_id, _ in zip(self._shown, range(_AT_ONCE), strict=False)]

    def show(self, asked: Sequence[str], tasks: Sequence[Task]) -> None:
        """Write what has changed."""
        found = {task.task_id: task for task in tasks}
        for task_id in asked:
            task = found.get(task_id)
            version = self._shown.pop(task_id, -1)
            if task is None or task.version != version:
                state = {"job_id": task_id, "status": "not found"} if task is None else state_of(task)
                replace_file(
                    self._folder / f"{file_name(task_id)}.json", msgspec.json.format(msgspec.json.encode(state))
                )
            if task is None or task.ended:
                (self._open / file_name(task_id)).unlink(missing_ok=True)
            else:
                self._shown[task_id] = task.version

    def _read_open(self) -> None:
        known = {file_name(task_id) for task_id in self._shown}
        with os.scandir(self._open) as entries:
            for entry in entries:
                if entry.name not in known and not entry.name.startswith("."):
                    with suppress(FileNotFoundError):
                        self._shown[Path(entry.path).read_text()] = -1


def state_of(task: Task) -> dict[str, Any]:
    """Return what a status file says of a task."""
    state = {
        "job_id": task.task_id,
        "status": str(task.status),
        "pipeline": task.pipeline,
        "phase": task.phase,
        "title": task.title,
        "attempt": task.attempt,
        "progress": shown(task, "progress"),
        "error": task.error,
        "added_at": task.created_at,
        "started_at": task.started_at,
        "ended_at": task.completed_at,
    }
    return state | ({"results": shown(task, "results")} if task.ended else {})


def file_name(task_id: str) -> str:
    """Return the name of a task's file without its suffix: the id, unless it is no good name."""
    if task_id.startswith((".", "-")) or len(task_id.encode()) > _LONGEST_NAME:
        return derived_id(task_id)
    return task_id
