"""The report as a table in the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ai_tagger.report import AccountReport, most_frequent


def print_report(accounts: Sequence[AccountReport], console: Console | None = None) -> None:
    """Print one row for each account, the total, and the reasons of failures."""
    console = console or Console(highlight=False)
    if not accounts:
        console.print("no accounts to show: tagger sync FILE adds them; a member sees only its own workspaces")
        return
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("account", overflow="fold")
    for name in ("posts", "tagged", "pending", "failed", "calls", "tokens", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in accounts:
        table.add_row(
            Text(f"{each.workspace} · {each.account}"), str(each.posts), str(each.tagged),
            _count(each.pending + each.processing, "yellow"), _count(each.failed, "red"), str(each.calls),
            f"{each.input_tokens + each.output_tokens:,}", f"{each.cost:.6f}",
        )  # fmt: skip
    console.print(table)
    for each in accounts:
        if each.tags:
            console.print(Text(f" {each.account}: {most_frequent(each.tags)}", style="cyan"))
    oldest = max((each.oldest_pending_seconds or 0 for each in accounts), default=0)
    waiting = sum(each.pending + each.processing for each in accounts)
    total = sum(each.cost for each in accounts)
    backlog = f"{waiting} pending, the oldest for {oldest:.0f} s" if waiting else "none"
    console.print(f" backlog: {backlog} · cost: {total:.6f}")
    for each in accounts:
        if each.error:
            console.print(Text(f" {each.account}: {each.failed} failed, for example: {each.error}", style="red"))


def _count(number: int, style: str) -> str:
    return f"[{style}]{number}[/]" if number else "0"
