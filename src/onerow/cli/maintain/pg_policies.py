"""`onerow pg policies`: print, apply or check row-level security."""

import click

from onerow.cli.findings import report_findings
from onerow.cli.maintain.pg import postgres_of
from onerow.cli.session import Session, with_session
from onerow.core.errors import BadInput
from onerow.sql_ports import PolicySettings


@click.command("policies")
@click.option("--tenant", "tenants", multiple=True, metavar="ROLE", help="A role that reads its own tasks; repeatable.")
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="ROLE",
    help="A role that reads and writes all tasks, for workers; repeatable. The owner of the tables is always one.",
)
@click.option("--using", metavar="SQL", help="Condition over a row of task_queue: which tasks a tenant reads.")
@click.option("--setting", metavar="NAME", help="Instead of --using: the session setting that holds the user_id.")
@click.option("--apply", "apply_", is_flag=True, help="Run the statements, in one transaction, instead of printing.")
@click.option("--check", is_flag=True, help="Report what is open; exit 1 if there is something.")
@with_session
def command(
    session: Session,
    tenants: tuple[str, ...],
    services: tuple[str, ...],
    using: str | None,
    setting: str | None,
    apply_: bool,
    check: bool,
) -> None:
    """Print the SQL for row-level security: tenants read their own tasks, only service roles write.

    Running it again replaces what was applied before.
    """
    if check:
        if apply_ or tenants or services or using or setting:
            raise BadInput("--check reads the database and takes no other option", field="check")
        report_findings(session.out, postgres_of(session).check_policies())
        return
    settings = PolicySettings(services=services, tenants=tenants, using=using or "", setting=setting or "")
    store = postgres_of(session)
    sql = store.policies_sql(settings)
    if apply_:
        store.apply_policies(settings)
    if session.out.as_json:
        session.out.json({"applied": apply_, "sql": sql})
    elif apply_:
        session.out.line(
            f"{session.bare_store.url}: row-level security is applied; to verify: onerow pg policies --check"
        )
    else:
        click.echo(sql, nl=False)
