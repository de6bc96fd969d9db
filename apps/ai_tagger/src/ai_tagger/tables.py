"""The report and the posts as text for the terminal."""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ai_tagger.report import AccountReport, Report

_MOST_TAGS = 4
_LONGEST_TEXT = 100
# Control characters, other line breaks, and marks that change the direction of the text after them.
_UNPRINTED = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def print_report(report: Report, console: Console | None = None) -> None:
    """Print one row for each account, the total, and the reasons of failures."""
    console = console or Console(highlight=False)
    if not report.accounts:
        console.print("no accounts to show: tagger sync FILE adds them; a member sees only its own workspaces")
        return
    console.print(_table(report.accounts))
    for each in report.accounts:
        if each.tags:
            console.print(Text(f" {_name(each)}: {one_line(most_frequent(each.tags))}", style="cyan"))
    for line in _totals(report):
        console.print(f" {line}")
    if report.held:
        console.print(Text(f" held: {one_line(report.held)}", style="yellow"))
    for each in report.accounts:
        if each.error:
            failed = f" {_name(each)}: {each.failed} failed, for example: {one_line(each.error)}"
            console.print(Text(failed, style="red"))


def _table(accounts: Iterable[AccountReport]) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 1), header_style="bold")
    table.add_column("account", overflow="fold")
    for name in ("posts", "tagged", "pending", "processing", "failed", "in calls", "cost"):
        table.add_column(name, justify="right", overflow="fold")
    for each in accounts:
        table.add_row(
            Text(_name(each)), str(each.posts), str(each.tagged), _count(each.pending, "yellow"),
            _count(each.processing, "yellow"), _count(each.failed, "red"), str(each.took_part_in_calls),
            _money(each.cost, each.known_cost),
        )  # fmt: skip
    return table


def _totals(report: Report) -> Iterator[str]:
    accounts = report.accounts
    jobs = {name: sum(getattr(each, name) for each in accounts) for name in ("pending", "processing")}
    backlog = [f"{count} {name}" for name, count in jobs.items() if count]
    if oldest := max((each.oldest_pending_seconds or 0 for each in accounts), default=0):
        backlog.append(f"the oldest for {_span(oldest)}")
    yield f"backlog: {', '.join(backlog) or 'none'}"
    tokens = sum(each.input_tokens + each.output_tokens for each in accounts)
    known = sum((each.known_cost for each in accounts), Decimal(0))
    complete = all(each.cost is not None for each in accounts)
    cost = _money(known if complete else None, known)
    yield f"calls: {report.calls:,} · tokens: {'' if complete else '≥ '}{tokens:,} · cost: {cost}"
    if tokens and not known:
        yield "set TAGGER_INPUT_PRICE and TAGGER_OUTPUT_PRICE for costs"


def post_line(post: Mapping[str, Any]) -> str:
    """Return a post in one line, cut to a length that can be read in a list."""
    tags = "not tagged yet" if post["tags"] is None else one_line(", ".join(post["tags"])) or "no tags"
    older = " of an older text" if post["current"] is False else ""
    text = one_line(post["text"])
    text = text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
    return f"{post['id']}  {one_line(post['workspace'])} · {one_line(post['account'])}  [{tags}]{older}  {text}"


def most_frequent(tags: Mapping[str, int]) -> str:
    """Return the most frequent tags with their numbers, as text."""
    best = sorted(tags.items(), key=lambda pair: (-pair[1], pair[0]))
    more = [f"+{len(best) - _MOST_TAGS} more"] if len(best) > _MOST_TAGS else []
    return ", ".join([f"{tag} {count}" for tag, count in best[:_MOST_TAGS]] + more)


def one_line(text: str) -> str:
    """Return text without line breaks and without characters that control a terminal."""
    return _UNPRINTED.sub(" ", text).strip()


def _name(each: AccountReport) -> str:
    account = "deleted accounts" if each.account is None else one_line(each.account)
    return account if each.workspace is None else f"{one_line(each.workspace)} · {account}"


def _count(number: int, style: str) -> str:
    return f"[{style}]{number}[/]" if number else "0"


def _money(cost: Decimal | None, known: Decimal) -> str:
    if cost is not None:
        return f"{cost:.6f}"
    return f"≥ {known:.6f}" if known else "?"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
