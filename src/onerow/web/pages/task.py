"""The page of one task: timeline, attempts, log, data, steps and signals, history, relatives."""

from typing import Any

from onerow.engine.queue import task_log
from onerow.ports import LogLine
from onerow.web.pages.gantt import draw
from onerow.web.pages.page import Ask, Page

TABS = {
    "attempts": "Attempts",
    "log": "Log",
    "data": "Data",
    "steps": "Steps and signals",
    "history": "History",
    "related": "Related",
}
_LINES = 400


def read_task(ask: Ask) -> dict[str, Any]:
    task_id = ask.get("id")
    detail = ask.views.detail(task_id)
    tab = ask.one_of("tab", TABS, "attempts")
    fold = ask.get("fold", "1") != "0"
    values: dict[str, Any] = {
        "detail": detail, "task": detail.view.task, "words": ask.views.labels(detail.view.task["pipeline"]).statuses, "why": detail.view.why, "tab": tab, "tabs": TABS, "fold": fold,
        "gantt": draw(detail.segments, detail.spans, detail.steps, detail.history, fold=fold),
    }  # fmt: skip
    if tab == "log":
        level = ask.one_of("level", dict.fromkeys(task_log.LEVELS), "")
        grep = ask.get("grep")
        wanted = task_log.Wanted(level=level or None, grep=task_log.pattern(grep) if grep else None)
        found = list(task_log.read(ask.queue, task_id, wanted, tail=_LINES))
        values |= {
            "lines": [each for each in found if isinstance(each, LogLine)],
            "level": level,
            "grep": grep,
            "most_lines": _LINES,
        }
    return values


TASK = Page(path="task", title="Task", template="task.html", read=read_task)
