"""Commands for operators: check, doctor, migrate, backup."""

import sys
from pathlib import Path

import click

from onerow.cli.app import app_argument, load_app, shown_store
from onerow.cli.findings import report_findings
from onerow.cli.maintain.app_check import check_app
from onerow.cli.output import Output
from onerow.cli.session import Session, with_session
from onerow.core.errors import BadInput
from onerow.ports import Administrable, Finding, Migration


@click.command("check")
@app_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(app: str, store: str | None, as_json: bool) -> None:
    """Load APP (module[:queue]) and report its problems. Opens no store and runs no task."""
    queue = load_app(app, store)
    report_findings(Output(as_json), [Finding("good", f"store {shown_store(queue)}"), *check_app(queue)])


@click.command("doctor")
@click.option("--repair", is_flag=True, help="Repair what can be repaired without data loss (counters).")
@click.option("--worker", metavar="NAME", help="Check only whether this worker (its name or host) claims; for probes.")
@with_session
def doctor(session: Session, repair: bool, worker: str | None) -> None:
    """Check the store, its clock, workers, leases, pauses and tasks that no worker serves."""
    if worker is not None:
        report_findings(session.out, session.views.check_worker(worker))
        return
    store = session.bare_store
    if repair and hasattr(store, "repair"):
        store.repair()
    findings = [Finding("good", f"store {store.url}")]
    findings += store.inspect() if isinstance(store, Administrable) else []
    if not any(finding.level == "bad" for finding in findings):
        findings += session.views.findings()
    report_findings(session.out, findings)


@click.command("migrate")
@click.option("--check", is_flag=True, help="Only check: exit 1 if a migration is pending.")
@click.option("--sql", is_flag=True, help="Print the migration instead of running it.")
@with_session
def migrate(session: Session, check: bool, sql: bool) -> None:
    """Create or update the tables of the store. Safe while workers run, and from several processes at once."""
    store = session.bare_store
    before = store.migration() if isinstance(store, Administrable) else None
    pending = before is not None and before.stored < before.known
    if sql:
        if before is None:
            raise BadInput(f"{store.url} can't say what it would run", fix="use: onerow migrate", field="store")
        click.echo(before.sql, nl=False)
        return
    if check:
        _say_migration(session, before, "needs" if pending else "has")
        sys.exit(1 if pending or (before is not None and before.min_code > before.known) else 0)
    store.prepare()
    after = store.migration() if isinstance(store, Administrable) else None
    _say_migration(session, after, "now has" if pending else "has")


def _say_migration(session: Session, found: Migration | None, verb: str) -> None:
    url = session.bare_store.url
    if session.out.as_json:
        session.out.json(
            {"store": url, "stored": found and found.stored, "known": found and found.known}
            | ({} if found is None else {"min_code": found.min_code})
        )
    elif found is None:
        session.out.line(f"{url} is ready")
    else:
        if found.stored > found.known and (newer := found.finding()) is not None:
            session.out.line(f"{url}: {newer.what}")
            session.out.line(f"  → {newer.fix}")
            return
        known = f"schema {found.known}"
        session.out.line(f"{url} {verb} {known}" + (f" (it has {found.stored})" if verb == "needs" else ""))


@click.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@with_session
def backup(session: Session, file: Path) -> None:
    """Copy the whole store to FILE while it is in use. (A plain copy of an SQLite file misses the data in its -wal.)"""
    store = session.queue.store
    if not isinstance(store, Administrable):
        raise BadInput(f"{store.url} has tools of its own for backups", fix="use those of its server", field="store")
    with session.out.progress("backup") as report:
        store.backup(file, report)
    size = file.stat().st_size
    if session.out.as_json:
        session.out.json({"file": str(file.absolute()), "bytes": size})
    else:
        session.out.line(f"{file.absolute()}: {size:,} bytes")
