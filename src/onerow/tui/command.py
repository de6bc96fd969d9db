"""`onerow monitor`: the pages of a queue in the terminal, or with --plain the board as text."""

import os
import shlex
import sys
from datetime import timedelta

import click

from onerow.cli.inspect.watch import watch
from onerow.cli.output import DUMB
from onerow.cli.session import Session, with_session
from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput
from onerow.engine.views import Views


@click.command("monitor")
@click.argument("query", nargs=-1)
@click.option("--read-only", is_flag=True, help="Offer no operation that changes anything.")
@click.option("--plain", is_flag=True, help="Print the board as text, like onerow watch; needs no extra package.")
@click.option("--interval", default="1s", show_default=True, help="Refresh interval.")
@click.option("--theme", metavar="NAME", help="Colours: textual-dark, textual-light, nord …; t changes them.")
@with_session
def command(
    session: Session, query: tuple[str, ...], read_only: bool, plain: bool, interval: str, theme: str | None
) -> None:
    """Watch and operate a queue in the terminal: board, tasks, failures, workers, schedules, limits, charts.

    With QUERY it opens the tasks that match. Press ? for the keys of a page. Without a terminal that can show it
    (TERM=dumb, a pipe), it prints the board like --plain.
    """
    rest = max(parse_duration(interval, "--interval").total_seconds(), 0.1)
    asked = " ".join(query)
    if plain or session.out.as_json or not _can_show():
        if asked:
            raise BadInput(
                "the board as text takes no query", fix=f"use: {shlex.join(['onerow', 'list', asked])}", field="query"
            )
        watch(session, rest, once=False)
        return
    views = Views(session.queue)
    if asked:
        # Raises for a query that cannot be parsed before the screen is taken.
        views.find(asked, limit=1, within=timedelta(0))
    try:
        from onerow.tui.app import THEMES, Monitor
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "textual":
            raise
        raise BadInput(
            "onerow monitor needs Textual",
            fix="install it with: pip install 'onerow[tui]', or use: onerow monitor --plain",
            field="monitor",
        ) from None
    if theme is not None and theme not in THEMES:
        raise BadInput(f"no theme {theme!r}", fix=f"choose one of {', '.join(THEMES)}", field="theme")
    app = Monitor(session.queue, query=asked, read_only=read_only, interval=rest, theme=theme)
    app.run()
    if app.return_code:
        sys.exit(app.return_code)


def _can_show() -> bool:
    """Whether the terminal can show pages: it is a terminal for input and output, and it moves the cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in DUMB
