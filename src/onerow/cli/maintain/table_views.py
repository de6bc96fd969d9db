"""`onerow pg view` and `onerow sqlite view`: show a pipeline as a view in the words of the user's table."""

from pathlib import Path

import click

from onerow.cli.maintain import mapping_file
from onerow.cli.session import Session, with_session
from onerow.core.adoption import check_plan
from onerow.core.errors import BadInput
from onerow.core.table_mapping import TableMapping, from_options, read_mapping
from onerow.engine.queue.scope import plan_of
from onerow.ports import Store
from onerow.table_ports import Viewable

SCHEMES = {"pg": ("postgresql", "postgres"), "sqlite": ("sqlite",)}
"""Group of commands → schemes of the store URLs that it accepts."""


def check_kind(store: Store, group: str) -> None:
    """Raise BadInput if the store is of another kind than the group of the command."""
    if store.url.partition(":")[0] not in SCHEMES[group]:
        raise BadInput(
            f"onerow {group} is not for {store.url}",
            fix=f"name a store like {SCHEMES[group][0]}://…" + ("" if group == "pg" else ", or use: onerow pg"),
            field="store",
        )


def view_command(group: str) -> click.Command:
    """Return the command `view` of a group."""

    @click.command("view")
    @click.argument("name", required=False)
    @click.option(
        "--mapping", "file", type=click.Path(dir_okay=False, path_type=Path), help="TOML file with the mapping."
    )
    @click.option("--pipeline", help="The pipeline whose tasks the view shows.")
    @click.option(
        "--columns", metavar="NAME=FIELD[:TYPE],…", help="Columns: id=task_id:uuid,post_id=payload.post_id:uuid"
    )
    @click.option(
        "--statuses", metavar="WORD=STATUS,…", help="Words of the status column: pending=waiting,done=completed"
    )
    @click.option("--unique", metavar="NAME,…", default="", help="The columns whose values are the unique key.")
    @click.option("--sql", "print_sql", is_flag=True, help="Print the statements instead of running them.")
    @click.option("--drop", is_flag=True, help="Remove the view NAME that this command made; the tasks stay.")
    @click.option("--list", "list_", is_flag=True, help="List the views.")
    @with_session
    def command(
        session: Session,
        name: str | None,
        file: Path | None,
        pipeline: str | None,
        columns: str | None,
        statuses: str | None,
        unique: str,
        print_sql: bool,
        drop: bool,
        list_: bool,
    ) -> None:
        store = session.queue.store
        check_kind(store, group)
        assert isinstance(store, Viewable)
        if list_:
            _list(session, store.views())
            return
        if name is None:
            raise BadInput("the view has no name", fix=f"give it: onerow {group} view NAME …", field="name")
        if drop:
            store.drop_view(name)
            _say(session, name, "dropped")
            return
        mapping = _mapping(name, file, pipeline, columns, statuses, unique)
        check_plan(mapping, plan_of(session.queue, mapping.pipeline))
        if print_sql:
            click.echo(store.view_sql(mapping), nl=False)
            return
        store.create_view(mapping)
        _say(session, name, "created")

    command.help = (
        "Show the tasks of a pipeline as the view NAME, in the columns and words of your table.\n\n"
        "Programs SELECT from it and INSERT into it; an UPDATE of the status cancels, fails or retries a task; DELETE cancels "
        "or removes it. What the rules don't allow is refused with the command to use. Running it again replaces the view."
    )
    return command


def _mapping(
    name: str, file: Path | None, pipeline: str | None, columns: str | None, statuses: str | None, unique: str
) -> TableMapping:
    if file is not None:
        if columns or statuses or unique:
            raise BadInput("the mapping comes from a file or from options", fix="give one of them", field="mapping")
        return mapping_file.load(file, table=name, pipeline=pipeline)
    if not pipeline or not columns:
        raise BadInput(
            "the view needs a mapping",
            fix="give --mapping FILE, or --pipeline, --columns and --statuses",
            field="mapping",
        )
    return read_mapping(from_options(name, pipeline, columns, statuses or "", unique))


def _say(session: Session, name: str, what: str) -> None:
    if session.out.as_json:
        session.out.json({"view": name, what: True})
    else:
        session.out.line(f"view {name}: {what}")


def _list(session: Session, views: list[TableMapping]) -> None:
    if session.out.as_json:
        session.out.json(
            [
                {"view": view.name, "pipeline": view.pipeline, "columns": [c.name for c in view.columns]}
                for view in views
            ]
        )
    elif not views:
        session.out.line("no views")
    else:
        session.out.table(
            ("view", "pipeline", "columns"), [(v.name, v.pipeline, ", ".join(c.name for c in v.columns)) for v in views]
        )


pg = view_command("pg")
sqlite = view_command("sqlite")
