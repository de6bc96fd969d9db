"""`onerow pg adopt` and `onerow sqlite adopt`: take over a table that is used as a queue."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

import click

from onerow.cli.maintain import mapping_file
from onerow.cli.maintain.table_views import check_kind
from onerow.cli.session import Session, with_session
from onerow.core.adoption import Processing, check_plan
from onerow.core.errors import BadInput
from onerow.core.table_mapping import TableMapping
from onerow.engine.control import definitions
from onerow.engine.queue.adopt import Adopted, Adoption, look, problems, undo
from onerow.ports import Administrable, Finding, Store
from onerow.table_ports import SUFFIX, Adopting, OldTable


def adopt_command(group: str) -> click.Command:
    """Return the command `adopt` of a group."""

    @click.command("adopt")
    @click.argument("table", metavar="OLD_TABLE", required=False)
    @click.option(
        "--mapping", "file", type=click.Path(dir_okay=False, path_type=Path), help="TOML file with the mapping."
    )
    @click.option(
        "--dry-run",
        is_flag=True,
        help="Only look: what stops the adoption, what is not carried over. Exit 1 if it can't be done.",
    )
    @click.option(
        "--undo", "undo_", is_flag=True, help="Give the old table its name back; refused once a task has run."
    )
    @click.option(
        "--processing",
        type=click.Choice(get_args(Processing)),
        default="stop",
        help="Rows that the old system is processing: wait for them (stop), run them again, or fail them.",
    )
    @click.option(
        "--example",
        metavar="NAME",
        help="Print a mapping to start from: ai_tag_queue, delayed_job, jobs, task_queue, transcription_jobs.",
    )
    @with_session
    def command(
        session: Session,
        table: str | None,
        file: Path | None,
        dry_run: bool,
        undo_: bool,
        processing: str,
        example: str | None,
    ) -> None:
        if example is not None:
            mapping_file.print_example(example)
            return
        if table is None or file is None:
            raise BadInput(
                "the table and its mapping are missing",
                fix=f"onerow {group} adopt OLD_TABLE --mapping FILE",
                field="mapping",
            )
        mapping = mapping_file.load(file, table=table)
        store = session.bare_store
        check_kind(store, group)
        _check_store(store, mapping)
        old = cast(Adopting, store).old_table(mapping)
        if undo_:
            _say_undone(session, table, undo(store, old))
        elif dry_run:
            _look(session, old)
        else:
            with session.out.progress("adopt") as report:
                adoption = Adoption(store, old, cast(Processing, processing), lambda done: report(_share(done)))
                done = adoption.run()
            _say_done(session, table, done)

    command.help = (
        "Take over OLD_TABLE, a table that programs use as a queue, while they go on using it.\n\n"
        "Copies its rows as tasks, compares each of them, then puts a view under the table's name in one short lock. The table "
        f"stays as OLD_TABLE{SUFFIX}. If it is interrupted, run it again: it resumes. Until the end the pipeline is paused."
    )
    return command


def _check_store(store: Store, mapping: TableMapping) -> None:
    """Raise if the store has no tables or no such pipeline. A table named task_queue is adopted before there are any."""
    assert isinstance(store, Administrable)
    if store.migration().stored == 0 and mapping.table == "task_queue":
        return
    store.check()
    if mapping.table != "task_queue":
        check_plan(mapping, definitions.known_plan(definitions.load_plans(store), mapping.pipeline))


def _look(session: Session, old: OldTable) -> None:
    shape = look(old)
    bad = problems(shape.findings)
    if session.out.as_json:
        session.out.json(
            {"table": old.mapping.table, "rows": shape.rows, "possible": not bad, "findings": shape.findings}
        )
    else:
        _say_findings(session, shape.findings)
        session.out.line(
            f"about {shape.rows:,} rows; "
            + ("it can't be adopted yet" if bad else "it can be adopted; nothing was changed")
        )
    if bad:
        raise SystemExit(1)


def _say_findings(session: Session, findings: Sequence[Finding]) -> None:
    for finding in findings:
        session.out.line(
            f"{'✗' if finding.level == 'bad' else '!'} {finding.what}",
            "bold red" if finding.level == "bad" else "yellow",
        )
        if finding.fix:
            session.out.line(f"  → {finding.fix}")


def _say_done(session: Session, table: str, done: Adopted) -> None:
    if session.out.as_json:
        session.out.json(
            {
                "table": table,
                "kept_as": f"{table}{SUFFIX}",
                "copied": done.copied,
                "changed": done.changed,
                "verified": done.verified,
                "findings": done.findings,
            }
        )
        return
    _say_findings(session, done.findings)
    session.out.line(
        f"{table} is adopted: {done.verified:,} rows verified, and {done.changed:,} that programs wrote in between"
    )
    session.out.line(f"  the old table is {table}{SUFFIX}; until a task has run, the way back is --undo")


def _say_undone(session: Session, table: str, what: str) -> None:
    if session.out.as_json:
        session.out.json({"table": table, "undone": True})
    else:
        session.out.line(f"{table}: {what}")


def _share(done: Adopted) -> float:
    return min(1.0, (done.copied + done.verified) / (2 * done.rows)) if done.rows else 0.5


pg = adopt_command("pg")
sqlite = adopt_command("sqlite")
