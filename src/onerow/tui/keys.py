"""The key table: every key of the monitor, the pages where it works, and what it does.

Bindings, the line of keys, the help and the table in the guide are made from it.
"""

from typing import NamedTuple

PAGES = ("board", "tasks", "task", "failures", "workers", "schedules", "limits", "pulse", "log")
_LISTS = ("board", "tasks", "task", "failures", "workers", "schedules", "limits", "log")
_HOLDS_TASKS = ("tasks", "task")


class Key(NamedTuple):
    """One key; `keys` has alternatives with commas, as Textual names them."""

    keys: str
    action: str
    text: str
    pages: tuple[str, ...]
    changes: bool = False  # changes tasks or controls: not with --read-only
    hint: str = ""  # the word in the line of keys; '' if the key is only in the help

    @property
    def shown(self) -> str:
        return " ".join(_NAMES.get(key, key) for key in self.keys.split(","))


_NAMES = {
    "enter": "Enter", "escape": "Esc", "space": "Space", "tab": "Tab", "shift+tab": "Shift-Tab", "up": "↑", "down": "↓",
    "pageup": "PgUp", "pagedown": "PgDn", "home": "Home", "end": "End", "ctrl+p": "Ctrl-P", "ctrl+r": "Ctrl-R",
    "full_stop": ".", "question_mark": "?", "slash": "/", "colon": ":", "asterisk": "*", "left_square_bracket": "[",
    "right_square_bracket": "]", "less_than_sign": "<", "greater_than_sign": ">",
}  # fmt: skip

KEYS: tuple[Key, ...] = (
    # every page
    Key("1", "app.go('board')", "go to the board", PAGES),
    Key("2", "app.go('tasks')", "go to the tasks", PAGES),
    Key("3", "app.go('failures')", "go to the failures", PAGES),
    Key("4", "app.go('workers')", "go to the workers", PAGES),
    Key("5", "app.go('schedules')", "go to the schedules", PAGES),
    Key("6", "app.go('limits')", "go to the limits and pauses", PAGES),
    Key("7", "app.go('pulse')", "go to the pulse", PAGES),
    Key("8", "app.go('log')", "go to the log of all running tasks", PAGES),
    Key("colon", "app.go_to_line", "go to: a page, a task id or a query", PAGES, hint="go to"),
    Key("slash", "app.search", "search: filter this page, or find text in the log", PAGES, hint="search"),
    Key("question_mark", "app.keys", "show the keys of this page", PAGES, hint="keys"),
    Key("ctrl+p", "app.command_palette", "open the palette", PAGES),
    Key("escape", "app.back", "go back", PAGES),
    Key("q", "app.quit", "quit; workers continue", PAGES, hint="quit"),
    Key("full_stop", "app.live", "stop or continue the updates", PAGES),
    Key("ctrl+r", "app.read_again", "read again now", PAGES),
    Key("u", "app.zone", "switch between local time and UTC", PAGES),
    Key("t", "app.next_theme", "next theme", PAGES),
    Key("n", "app.add", "add a task", PAGES, changes=True, hint="add"),
    # lists
    Key("up,k", "grid.move(-1)", "up", _LISTS),
    Key("down,j", "grid.move(1)", "down", _LISTS),
    Key("pageup", "grid.page(-1)", "a page up", _LISTS),
    Key("pagedown", "grid.page(1)", "a page down", _LISTS),
    Key("home", "grid.first", "first line", _LISTS),
    Key("end", "grid.last", "last line", _LISTS),
    Key("enter", "grid.open", "open the line; fold or unfold it in a tree; show the whole traceback of an attempt", _LISTS, hint="open"),
    Key("tab", "app.focus_next", "next list of the page", ("board",)),
    # phases
    Key("p", "pause", "pause or resume the phase, pipeline or schedule", ("board", "limits", "schedules"), changes=True, hint="pause"),
    Key("L", "limit", "set the limits of the phase", ("board", "limits"), changes=True, hint="limits"),
    # tasks
    Key("tab", "tab(1)", "next tab", ("tasks", "task", "pulse"), hint="tab"),
    Key("shift+tab", "tab(-1)", "previous tab", ("tasks", "task", "pulse")),
    Key("space", "mark", "mark or unmark the task", ("tasks",), hint="mark"),
    Key("asterisk", "mark_all", "mark all tasks that match the query, or none", ("tasks",), hint="mark all"),
    Key("o", "order", "next order: newest, oldest, due, latest", ("tasks",)),
    Key("y", "copy", "copy the task id", _HOLDS_TASKS),
    Key("r", "retry", "retry failed tasks; of failures: the whole group, also at a pace", ("tasks", "task", "failures"), changes=True, hint="retry"),
    Key("R", "replay", "replay ended tasks from an earlier phase", _HOLDS_TASKS, changes=True),
    Key("C", "cancel", "cancel tasks; of failures: the whole group", ("tasks", "task", "failures"), changes=True, hint="cancel"),
    Key("F", "finish", "mark tasks as completed without running them", _HOLDS_TASKS, changes=True),
    Key("m", "signal", "send a signal", _HOLDS_TASKS, changes=True),
    Key("s", "reschedule", "change when waiting tasks are due", _HOLDS_TASKS, changes=True),
    Key("P", "priority", "change the priority", _HOLDS_TASKS, changes=True),
    # one task
    Key("left_square_bracket", "neighbour(-1)", "previous task of the list", ("task",)),
    Key("right_square_bracket", "neighbour(1)", "next task of the list", ("task",)),
    Key("i", "fold_idle", "fold or unfold idle time", ("task",)),
    Key("f", "follow", "log: follow new lines", ("task", "log"), hint="follow"),
    Key("l", "level", "log: next minimum level", ("task", "log"), hint="level"),
    Key("w", "save_log", "log: save to a file", ("task",)),
    Key("a", "all_frames", "attempts: my code or all frames", ("task",)),
    # workers
    Key("D", "drain", "drain the worker: it finishes its tasks and ends", ("workers",), changes=True, hint="drain"),
    # schedules
    Key("x", "run_now", "run the schedule now", ("schedules",), changes=True, hint="run now"),
    # pulse
    Key("less_than_sign", "span(-1)", "shorter period", ("pulse",), hint="period"),
    Key("greater_than_sign", "span(1)", "longer period", ("pulse",)),
)  # fmt: skip
"""Every key; `grid.` actions belong to the lists, `app.` actions to the whole monitor, others to the page."""


def keys_of(page: str, *, read_only: bool = False) -> list[Key]:
    """Return the keys that work on a page."""
    return [key for key in KEYS if page in key.pages and not (read_only and key.changes)]


def markdown_table() -> str:
    """Return the table of keys for the guide."""
    lines = ["| key | what it does | pages |", "| --- | --- | --- |"]
    for key in KEYS:
        pages = "all" if key.pages == PAGES else ", ".join(key.pages)
        lines.append(f"| `{key.shown}` | {key.text} | {pages} |")
    return "\n".join(lines) + "\n"
