"""The tabs of a task: each is a list of lines, and details for some of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.text import Text

from onerow.cli import formatting
from onerow.cli.output import status_cell
from onerow.engine.output.terminal import neutral, neutral_lines
from onerow.engine.views import AttemptLine, Row, TaskDetail
from onerow.tui.cells import Cell, message_of
from onerow.tui.grid import Line
from onerow.tui.json_tree import tree_lines
from onerow.tui.layout import Column
from onerow.tui.log_tail import LogTail

TABS = ("attempts", "log", "data", "steps", "related", "history")
LOG_STYLE = {"err": "yellow", "warning": "yellow", "error": "red", "critical": "bold red", "debug": "dim"}
_OUTCOME_STYLE = {"running": "cyan", "failed": "red", "rescued": "yellow", "advanced": "green", "completed": "green"}
Content = tuple[Sequence[Column], list[Line], str]
TimeOf = Callable[[datetime | None], str]


@dataclass
class TabState:
    """What the user chose on the page of a task."""

    tab: str = "attempts"
    fold_idle: bool = True
    follow: bool = True
    all_frames: bool = False
    toggled: set[str] = field(default_factory=set)
    details: dict[str, Text] = field(default_factory=dict)  # by the key of a line


def tab_content(state: TabState, detail: TaskDetail, log: LogTail, time_of: TimeOf) -> Content:
    """Return the columns and lines of the chosen tab, and what it says when it is empty."""
    state.details.clear()
    match state.tab:
        case "log":
            return _log(log)
        case "data":
            return _data(detail, state)
        case "steps":
            return _steps(detail, state, time_of)
        case "related":
            return _related(detail)
        case "history":
            return _history(detail, time_of)
    return _attempts(detail, state, time_of)


# ── attempts ──


def _attempts(detail: TaskDetail, state: TabState, time_of: TimeOf) -> Content:
    columns = (
        Column("n", right=True),
        Column("phase", 20),
        Column("outcome", 12),
        Column("started", 24, drop=3),
        Column("ran", right=True),
        Column("worker", 30, drop=2),
        Column("error", 300, grow=True),
    )
    lines = []
    for number, each in enumerate(detail.attempts):
        key = f"attempt\n{len(detail.attempts) - number}"
        cause = " ".join(part for part in (each.exception or each.error_class, each.where) if part)
        lines.append(
            Line(
                key,
                [
                    str(each.attempt),
                    each.phase,
                    (each.outcome, _OUTCOME_STYLE.get(each.outcome, "")),
                    time_of(each.started_at),
                    formatting.millis(each.run_ms),
                    each.worker,
                    (f"{cause}: {message_of(each.message, each.exception)}", "red") if each.message else each.note,
                ],
            )
        )
        if each.message or each.traceback is not None:
            state.details[key] = _error_text(each, all_frames=state.all_frames)
    return columns, lines, "No attempt yet."


def _error_text(each: AttemptLine, *, all_frames: bool) -> Text:
    text = Text(neutral(f"{each.error_class}: {each.message}"), style="red", no_wrap=False)
    if each.traceback is None:
        return text
    hidden = sum(not part.mine for part in each.traceback.parts)
    more = "" if not hidden else " (a: my code only)" if all_frames else f" (a: {hidden} frames of libraries hidden)"
    text.append(f"\ntraceback{more}", "dim")
    for part in each.traceback.parts:
        if part.mine or all_frames:
            text.append("\n" + neutral_lines(part.text), "bold" if part.file and part.mine else "")
    return text


# ── log ──


def _log(log: LogTail) -> Content:
    columns = (Column("time", 8), Column("phase", 20, drop=1), Column("text", 2_000, grow=True))
    lines = [
        Line(
            f"log\n{line.seq}.{part}",
            [
                f"{line.at:%H:%M:%S}",
                f"{line.phase}#{line.attempt}",
                (text.expandtabs(4), LOG_STYLE.get(line.level, "")),
            ],
        )
        for line in log.shown()
        for part, text in enumerate(line.text.split("\n"))
    ]
    empty = f"No line of level {log.level}." if log.level else "This task has logged nothing yet."
    return columns, lines, empty


# ── data, steps ──

_TREE = (Column("value", 4_000, grow=True),)


def _data(detail: TaskDetail, state: TabState) -> Content:
    lines: list[Line] = []
    task = detail.view.task
    for name in ("payload", "results", "progress", "metadata"):
        if task[name] not in (None, {}, []):
            lines += _tree(name, task[name], state)
    if detail.links:
        lines.append(Line("", ["named by the results"], heading=True))
        lines += [Line(f"link\n{link.target}", [(f"  {link.where}: {link.target}", "cyan")]) for link in detail.links]
    return _TREE, lines, "It has no payload and no results."


def _tree(name: str, value: Any, state: TabState, note: str = "") -> Iterator[Line]:
    for each in tree_lines(name, value, state.toggled):
        sign = "▾ " if each.open else "▸ " if each.folds else "  "
        said = f"   {note}" if note and not each.depth else ""
        cell: Cell = (f"{'  ' * each.depth}{sign}{each.name}: {each.value}{said}", "" if each.folds else each.style)
        yield Line(f"tree\n{each.path}" if each.folds else f"leaf\n{each.path}", [cell])


def _steps(detail: TaskDetail, state: TabState, time_of: TimeOf) -> Content:
    lines: list[Line] = []
    if (awaited := detail.awaited) is not None:
        until = f" until {time_of(awaited.deadline)}" if awaited.deadline is not None else ""
        said = f"waits for the signal {awaited.name} since {time_of(awaited.since)}{until}   m: send it"
        lines.append(Line("awaited\n", [(said, "bold magenta")]))
    for step in detail.steps:
        note = f"{step.kind}, {time_of(step.at)}" + (" expired" if step.expired else "")
        lines += _tree(f"{step.phase} / {step.name}", f"waiting for {step.awaiting}" if step.awaiting else step.result, state, note)  # fmt: skip
    for number, signal in enumerate(detail.signals):
        taken = f"taken {time_of(signal.taken_at)}" if signal.taken_at is not None else "not taken yet"
        note = f"{time_of(signal.at)}{f' from {signal.by}' if signal.by else ''}, {taken}"
        lines += _tree(f"signal {signal.name} #{len(detail.signals) - number}", signal.payload, state, note)
    return _TREE, lines, "It has no steps and no signals."


# ── related tasks ──


def _related(detail: TaskDetail) -> Content:
    columns = (Column("task", 36), Column("status", 12), Column("phase", 30, drop=1), Column("title", 200, grow=True))
    lines: list[Line] = []
    if detail.parent is not None:
        lines += [Line("", ["parent"], heading=True), _relative(detail.parent)]
    if detail.children is not None:
        counts = ", ".join(f"{each.count:,} {each.status} in {each.phase}" for each in detail.children_counts)
        lines.append(Line("", ["children:", counts], heading=True))
        lines += [_relative(row) for row in detail.children.tasks]
    return columns, lines, "It has no parent and no children."


def _relative(row: Row) -> Line:
    return Line(
        f"task\n{row.task_id}",
        [row.task_id, status_cell(row.status, row.parked), f"{row.pipeline}.{row.phase}", row.title],
    )


# ── history ──


def _history(detail: TaskDetail, time_of: TimeOf) -> Content:
    columns = (
        Column("time", 24),
        Column("what", 14),
        Column("phase", 20, drop=1),
        Column("took", right=True, drop=2),
        Column("by", 30),
        Column("note", 300, grow=True),
    )
    lines = [
        Line(
            f"history\n{len(detail.history) - number}",
            [
                time_of(each.at),
                (each.what, "red" if each.error else ""),
                f"{each.phase}#{each.attempt}" if each.attempt else each.phase,
                formatting.millis(each.ms),
                each.by,
                " · ".join(part for part in (each.note, each.error) if part),
            ],
        )
        for number, each in enumerate(detail.history)
    ]
    return columns, lines, ""
