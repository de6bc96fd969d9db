"""The group `onerow pg`: what onerow sets up in a PostgreSQL database beside its own tables."""

import click

from onerow.cli.lazy_group import LazyGroup
from onerow.cli.session import Session
from onerow.core.errors import BadInput
from onerow.sql_ports import PostgresDatabase

MEMBERS = {
    "policies": ("onerow.cli.maintain.pg_policies:command", "Row-level security: tenants read their own tasks."),
    "attach": ("onerow.cli.maintain.pg_attach:attach", "Delete and cancel tasks with a row of your table."),
    "detach": ("onerow.cli.maintain.pg_attach:detach", "Undo attach."),
    "view": ("onerow.cli.maintain.table_views:pg", "Show a pipeline as a view in the words of your table."),
    "adopt": ("onerow.cli.maintain.adopt:pg", "Take over a table that programs use as a queue."),
}


@click.command("pg", cls=LazyGroup, members=MEMBERS)
def group() -> None:
    """PostgreSQL: row-level security, attached tables, views, adopting a queue table."""


def postgres_of(session: Session) -> PostgresDatabase:
    """Return the store of the session; raise BadInput if it is not in PostgreSQL."""
    store = session.queue.store
    if not isinstance(store, PostgresDatabase):
        raise BadInput(
            f"{store.url} is not in PostgreSQL", fix="name a store like postgresql://user@host/database", field="store"
        )
    return store
