"""The screen of the demo: one row per task, one column per phase, and the messages so far."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from onerow.cli import formatting
from onerow.core.status import PROCESSING, WAITING
from onerow.core.task import Task

_BAR = 9


def paint(
    tasks: Sequence[Task],
    phases: Sequence[str],
    cast: Sequence[tuple[int, bool]],
    lines: Sequence[str],
    now: datetime,
    url: str,
) -> Any:
    """Return the whole screen; `cast` lists worker pids and whether each is alive."""
    from rich.box import ROUNDED, SIMPLE
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE, pad_edge=False, header_style="dim", expand=True)
    grid.add_column("one task, one row", no_wrap=True, ratio=5)
    for phase in phases:
        grid.add_column(phase, no_wrap=True, ratio=4)
    for task in tasks:
        style = "green" if task.ended else "bold"
        grid.add_row(Text(task.title, style=style), *(_cell(task, phase, phases, now) for phase in phases))
    head = Text.assemble(("onerow demo  ", "bold"), (f"{url}  ", "dim"))
    for pid, lives in cast:
        head.append(
            f"● worker {pid}  " if lives else f"✝ worker {pid} killed  ", style="green" if lives else "bold red"
        )
    story = Text("\n").join(Text(line, style=_style(line)) for line in lines[-9:])
    return Group(head, grid, Panel(story, box=ROUNDED, title="what happens", title_align="left", border_style="dim"))


def _style(line: str) -> str:
    if "kill -9" in line:
        return "bold red"
    if "goes on" in line or "new worker" in line:
        return "bold green"
    return "yellow" if "failed" in line else ""


def _cell(task: Task, phase: str, phases: Sequence[str], now: datetime) -> Any:
    from rich.text import Text

    here, there = phases.index(task.phase), phases.index(phase)
    if there < here or task.ended:
        took = [entry.ms for entry in task.history if entry.phase == phase and entry.what in ("advanced", "completed")]
        tries = sum(entry.phase == phase and entry.what in ("failed", "rescued") for entry in task.history)
        again = f" #{tries + 1}" if tries else ""
        return Text(f"✔ {formatting.millis(took[-1]) if took else ''}{again}", style="green")
    if there > here:
        return Text("")
    if task.status is PROCESSING:
        if task.leased_until is not None and task.progress:
            share = task.progress["done"] / task.progress["total"]
            full = round(share * _BAR)
            return Text.assemble(("━" * full, "cyan"), ("─" * (_BAR - full), "dim"), (f" {share:.0%}", "cyan"))
        return Text("running", style="cyan")
    if task.status is WAITING and task.awaiting is not None:
        return Text("◌ signal", style="magenta")
    if task.run_at > now:
        return Text(f"↻ {formatting.due(task.run_at, now)}", style="yellow")
    return Text("waiting", style="yellow")
