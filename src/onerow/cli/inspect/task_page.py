"""The page of one task: fields, reason, timeline with bars, payload and results."""

import json
from datetime import datetime
from typing import Any

from onerow.cli import formatting
from onerow.cli.output import STATUS_STYLE, Cell, Output
from onerow.engine.output.terminal import neutral_json
from onerow.engine.views import Moment, TaskView

_WIDTH = 28
_BAD = {"failed", "expired", "cancelled", "cancel"}
_BLOCK = {"advanced": "green", "completed": "green", "failed": "red", "rescued": "yellow", "running": "cyan"}


def show_task(out: Output, view: TaskView, now: datetime) -> None:
    """Print the page of a task."""
    task = view.task
    parked = task["status"] == "waiting" and task["awaiting"] is not None
    text = "parked" if parked else str(task["status"])
    where = " → ".join(f"[{phase}]" if phase == task["phase"] else phase for phase in view.phases)
    out.fields(
        [
            ("task", (task["task_id"], "bold")),
            ("title", task["title"]),
            ("status", (f"{text} in {task['phase']}", STATUS_STYLE[text])),
            ("pipeline", f"{task['pipeline']}: {where}"),
            ("user", task["user_id"]),
            ("parent", task["parent_id"] or ""),
            ("inbox", view.why.inbox),
            ("added", f"{formatting.at(task['created_at'])} ({formatting.ago(task['created_at'], now)} ago)"),
            ("due", formatting.at(task["run_at"]) if text == "waiting" and task["run_at"] > now else ""),
            ("ended", formatting.at(task["completed_at"])),
            (
                "attempt",
                f"{task['attempt']}, {task['retry_count'] - task['retry_base']} of {task['max_retries']} retries used",
            ),
            ("progress", formatting.progress(task["progress"])),
            ("priority", str(task["priority"]) if task["priority"] else ""),
            ("unique key", task["unique_key"] or ""),
            ("limit key", task["limit_key"]),
            ("error", (task["error"] or "", "red")),
        ]
    )
    out.line()
    out.line(view.why.sentence)
    if view.why.command:
        out.line(f"→ {view.why.advice}", "bold")
    out.line()
    _timeline(out, view.timeline)
    for name in ("payload", "results", "steps", "signals", "metadata"):
        if task[name] not in (None, {}, []):
            out.line()
            out.line(name, "dim")
            for line in neutral_json(json.dumps(task[name], ensure_ascii=False, indent=2)).split("\n"):
                out.line(f"  {line}")


def _timeline(out: Output, moments: list[Moment]) -> None:
    first, last = moments[0].at, moments[-1].at
    whole = max((last - first).total_seconds(), 0.001)
    rows: list[list[Cell]] = []
    for moment in moments:
        style = "red" if moment.error or moment.what in _BAD else ""
        attempt = f" #{moment.attempt}" if moment.attempt > 1 else ""
        rows.append(
            [
                f"{moment.at:%H:%M:%S}.{moment.at.microsecond // 1000:03d}",
                (moment.what, style),
                f"{moment.phase}{attempt}",
                formatting.millis(moment.ms),
                (_bar(moment, first, whole), _BLOCK.get(moment.what, "dim")),
                moment.by,
                _note(moment),
            ]
        )
    out.table(["time", "what", "phase", ">took", "", "by", "note"], rows)


def _bar(moment: Moment, first: datetime, whole: float) -> str:
    """Return a bar that shows the start and duration of an entry within the task's lifetime."""
    end = (moment.at - first).total_seconds() / whole
    start = end if moment.began_at is None else max(0.0, (moment.began_at - first).total_seconds() / whole)
    left = min(int(start * _WIDTH), _WIDTH - 1)
    long = max(1, min(round((end - start) * _WIDTH), _WIDTH - left))
    block = "·" if moment.began_at is None else "█" * long
    return (" " * left + block).ljust(_WIDTH)


def _note(moment: Moment) -> Cell:
    parts: list[Any] = [f"{moment.error_class}: {moment.error}" if moment.error else "", moment.where, moment.note]
    return " · ".join(part for part in parts if part), "red" if moment.error else "dim"
