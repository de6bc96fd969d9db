"""Output of commands: coloured tables in a terminal, plain columns elsewhere, JSON with --json."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from onerow.core.times import spell
from onerow.engine.output.terminal import neutral, neutral_json

if TYPE_CHECKING:
    from rich.console import Console

Cell = str | tuple[str, str]  # a text, or a text and its style

DUMB = ("", "dumb", "unknown")
"""Values of TERM without colours and cursor movement."""
STATUS_STYLE = {
    "waiting": "yellow",
    "parked": "magenta",
    "processing": "bold cyan",
    "completed": "green",
    "failed": "bold red",
    "cancelled": "dim",
}


class Output:
    """Prints the output of a command. Every method replaces control sequences, so that task text cannot steer a terminal."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.pretty = sys.stdout.isatty() and not as_json and os.environ.get("TERM") not in DUMB

    @property
    def console(self) -> "Console":
        from rich.console import Console

        return Console(highlight=False, soft_wrap=False)

    def json(self, value: Any) -> None:
        """Print one JSON document."""
        plain = msgspec.to_builtins(value, builtin_types=(datetime, timedelta), str_keys=True)
        click.echo(neutral_json(json.dumps(_spelled(plain), ensure_ascii=False, indent=2)))

    def line(self, text: str = "", style: str = "") -> None:
        text = neutral(text)
        if self.pretty and style:
            from rich.text import Text

            self.console.print(Text(text, style=style))
        else:
            click.echo(text)

    def aside(self, text: str) -> None:
        """Print a remark for people to standard error."""
        if not self.as_json:
            click.echo(neutral(text), err=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str = "") -> None:
        """Print aligned columns, also with wide (CJK) characters; a name that begins with '>' is right-aligned."""
        cells = styled(rows)
        if self.pretty:
            self.console.print(rich_table(columns, cells, neutral(title)))
        else:
            if title:
                click.echo(neutral(title))
            for line in _plain_lines(columns, cells):
                click.echo(line)

    def fields(self, pairs: Iterable[tuple[str, Cell]]) -> None:
        """Print names and values, one per line, without empty values."""
        shown = [(name, cell if isinstance(cell, tuple) else (cell, "")) for name, cell in pairs]
        shown = [(name, (neutral(text), style)) for name, (text, style) in shown if text]
        width = max((len(name) for name, _ in shown), default=0)
        for name, (text, style) in shown:
            if self.pretty:
                from rich.text import Text

                self.console.print(Text.assemble((f"{name:<{width}}  ", "dim"), (text, style)))
            else:
                click.echo(f"{name:<{width}}  {text}")

    @contextmanager
    def progress(self, what: str) -> Iterator[Any]:
        """Show a progress bar in a terminal; yield a function that takes the share done."""
        if not sys.stderr.isatty() or self.as_json:
            yield lambda share: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        with Progress(
            TextColumn(what), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn(),
            console=Console(stderr=True), transient=True,
        ) as bar:  # fmt: skip
            task = bar.add_task(what, total=1.0)
            yield lambda share: bar.update(task, completed=share)


def styled(rows: Iterable[Sequence[Cell]]) -> list[list[tuple[str, str]]]:
    return [[cell if isinstance(cell, tuple) else (cell, "") for cell in row] for row in rows]


def status_cell(status: str, parked: bool = False) -> Cell:
    shown = "parked" if parked else status
    return shown, STATUS_STYLE[shown]


def rich_table(columns: Sequence[str], cells: list[list[tuple[str, str]]], title: str = "") -> Any:
    """Return a table for a terminal; text that does not fit is cut."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False, header_style="dim")
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if right else "left", overflow="ellipsis", no_wrap=True)
    for row in cells:
        table.add_row(*(Text(neutral(text), style=style) for text, style in row))
    return table


def _plain_lines(columns: Sequence[str], cells: list[list[tuple[str, str]]]) -> Iterator[str]:
    from rich.cells import cell_len

    rows = [[name.lstrip(">") for name in columns], *([neutral(text) for text, _ in row] for row in cells)]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(columns))]
    for row in rows:
        parts = []
        for column, text in enumerate(row):
            gap = " " * (widths[column] - cell_len(text))
            parts.append(gap + text if columns[column].startswith(">") else text + gap)
        yield "  ".join(parts).rstrip()


def _spelled(value: Any) -> Any:
    """Replace times by text in the format of onerow, durations by seconds."""
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in value]
    if isinstance(value, datetime):
        return spell(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value
