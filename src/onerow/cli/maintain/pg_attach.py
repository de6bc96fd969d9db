"""`onerow pg attach` and `detach`: deleted rows of the user's tables take their tasks along."""

import click

from onerow.cli.maintain.pg import postgres_of
from onerow.cli.session import Session, with_session
from onerow.core.errors import BadInput
from onerow.engine.queue.scope import plan_of
from onerow.sql_ports import Attachment

_PIPELINE = click.option("--pipeline", metavar="NAME", help="The pipeline of the tasks.")


@click.command("attach")
@click.option("--table", metavar="NAME", help="Your table.")
@click.option(
    "--key", default="", metavar="COLUMN", help="Its column that the tasks refer to; default: the primary key."
)
@_PIPELINE
@click.option("--match", metavar="FIELD", help="What refers to it: unique_key, task_id, user_id or payload.FIELD.")
@click.option("--list", "list_", is_flag=True, help="List attached tables.")
@with_session
def attach(session: Session, table: str | None, key: str, pipeline: str | None, match: str | None, list_: bool) -> None:
    """Have deleted rows of a table take their tasks along, with children, whichever role deletes them.

    Waiting and ended tasks are deleted, running tasks are cancelled, at the commit of the transaction that deletes.
    """
    database = postgres_of(session)
    if list_:
        if table or key or pipeline or match:
            raise BadInput("--list takes no other option", field="list")
        _print(session, database.attachments(), "no table is attached")
        return
    if not table or not pipeline or not match:
        raise BadInput(
            "what is to be attached?",
            fix="onerow pg attach --table posts --key id --pipeline tagging --match payload.post_id",
            field="table",
        )
    plan_of(session.queue, pipeline)  # raises UnknownName with the nearest name
    done = database.attach(Attachment(table=table, key=key, pipeline=pipeline, match=match))
    if session.out.as_json:
        session.out.json(done)
    else:
        session.out.line(f"{done.table} is attached: a deleted row takes the {_tasks(done)} along")


@click.command("detach")
@click.option("--table", required=True, metavar="NAME", help="Your table.")
@click.option("--pipeline", required=True, metavar="NAME", help="The pipeline of the tasks.")
@click.option("--match", metavar="FIELD", help="Only this attachment, if there are several.")
@with_session
def detach(session: Session, table: str, pipeline: str, match: str | None) -> None:
    """Undo attach: deleted rows leave their tasks alone."""
    gone = postgres_of(session).detach(table, pipeline, match)
    if session.out.as_json:
        session.out.json(gone)
    else:
        for each in gone:
            session.out.line(f"{each.table} is detached from the {_tasks(each)}")


def _tasks(attachment: Attachment) -> str:
    return f"tasks of {attachment.pipeline} whose {attachment.match} is its {attachment.key}"


def _print(session: Session, found: list[Attachment], none: str) -> None:
    if session.out.as_json:
        session.out.json(found)
    elif found:
        rows = [(each.table, each.key, each.pipeline, each.match) for each in found]
        session.out.table(["table", "key", "pipeline", "match"], rows)
    else:
        session.out.aside(none)
