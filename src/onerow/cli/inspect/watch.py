"""`onerow watch`: redraw the board until Ctrl-C."""

import time

import click

from onerow.cli.inspect.board import look, print_board, rich_board
from onerow.cli.session import Session, with_session
from onerow.core.durations import parse_duration
from onerow.core.errors import StoreUnavailable


@click.command("watch")
@click.option("--interval", default="1s", show_default=True, help="Refresh interval.")
@click.option("--once", is_flag=True, help="Print the board once and exit.")
@with_session
def command(session: Session, interval: str, once: bool) -> None:
    """Show a live board of all pipelines and their phases; press Ctrl-C to exit."""
    watch(session, max(parse_duration(interval, "--interval").total_seconds(), 0.1), once=once)


def watch(session: Session, rest: float, *, once: bool) -> None:
    """Print or redraw the board every `rest` seconds; also what `onerow monitor --plain` does."""
    views = session.views
    if session.out.as_json:
        overview, board, _ = look(views)
        session.out.json({"overview": overview, "board": board})
    elif once:
        print_board(session.out, views)
    elif session.out.pretty:
        _paint(session, rest)
    else:
        while True:
            try:
                print_board(session.out, views)
            except StoreUnavailable as error:
                session.out.aside(f"store unavailable, retrying: {error}")
            click.echo()
            time.sleep(rest)


def _paint(session: Session, rest: float) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(rich_board(session.views), console=session.out.console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                live.update(rich_board(session.views), refresh=True)
            except StoreUnavailable as error:
                live.update(Text(f"store unavailable, retrying: {error}", style="red"), refresh=True)
            time.sleep(rest)
