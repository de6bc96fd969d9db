"""The group `onerow sqlite`: what onerow sets up in an SQLite file beside its own tables."""

import click

from onerow.cli.lazy_group import LazyGroup

MEMBERS = {
    "view": ("onerow.cli.maintain.table_views:sqlite", "Show a pipeline as a view in the words of your table."),
    "adopt": ("onerow.cli.maintain.adopt:sqlite", "Take over a table that programs use as a queue."),
}


@click.command("sqlite", cls=LazyGroup, members=MEMBERS)
def group() -> None:
    """SQLite: views, adopting a queue table."""
