"""The command `tagger`."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import click
import psycopg

from ai_tagger import __version__
from ai_tagger.checks import SET_UP, advice, check_members, check_writable
from ai_tagger.settings import Settings
from onerow import OnerowError
from onerow.core.errors import SchemaMissing
from onerow.engine.output.masking import NO_SECRETS


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tagger")
def main() -> None:
    """Tag synced posts in batches, with a language model or offline.

    Configured by the environment: TAGGER_DATABASE_URL, and TAGGER_MODEL_URL, TAGGER_MODEL, TAGGER_API_KEY for a model.
    Without TAGGER_MODEL_URL the offline tagger is used. The README lists the others.
    """


@contextmanager
def _opened(*, of_setup: bool = False) -> Iterator[Settings]:
    """Yield the settings; errors of the app and of PostgreSQL become one line with what to do."""
    try:
        settings = Settings.of_environment()
    except OnerowError as error:
        raise _failed(str(error), error.fix) from None
    try:
        yield settings
    except SchemaMissing as error:
        raise _failed(str(error), SET_UP) from None
    except OnerowError as error:
        raise _failed(str(error), error.fix) from None
    except psycopg.Error as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        fix = advice(settings, error, of_setup=of_setup)
        raise _failed(f"PostgreSQL (TAGGER_DATABASE_URL): {NO_SECRETS.text(lines[0])}", fix) from None


def _failed(message: str, fix: str) -> click.ClickException:
    return click.ClickException(f"{message}; {fix}" if fix else message)


@main.command()
@click.option(
    "--member", "members", multiple=True, metavar="ROLE=WORKSPACE", help="Let a role read a workspace; repeatable."
)
@click.option(
    "--remove-member", "former", multiple=True, metavar="ROLE=WORKSPACE", help="Let it read no more; repeatable."
)
def setup(members: tuple[str, ...], former: tuple[str, ...]) -> None:
    """Create tables, roles, row-level security, the view ai_tag_queue and cascades; safe to run again."""
    with _opened(of_setup=True) as settings:
        from ai_tagger import database

        added, removed = check_members(settings, members), check_members(settings, former)
        database.set_up(settings)
        click.echo(f"ready: members read as {settings.members_role}, workers write as {settings.service_role}")
        for role, workspace in added:
            database.add_member(settings, role, workspace)
            click.echo(f"{role} reads the workspace {workspace}")
        for role, workspace in removed:
            database.remove_member(settings, role, workspace)
            click.echo(f"{role} no longer reads the workspace {workspace}")


@main.command()
@click.argument("posts", type=click.File("rb"), default="-", metavar="[FILE]")
def sync(posts: IO[bytes]) -> None:
    """Store posts from JSON Lines and add their jobs, in one transaction.

    A line: {"workspace": "…", "account": "…", "id": "…", "text": "…"}. A post that is known and unchanged gets no job.
    """
    name = "standard input" if (path := getattr(posts, "name", "<stdin>")) == "<stdin>" else str(path)
    if posts.isatty():
        click.echo("reads posts from standard input, until Ctrl-D", err=True)
    with _opened() as settings:
        from ai_tagger.posts import read_posts, sync_posts

        given = read_posts(posts, name)
        synced = sync_posts(settings, given)
    if not given:
        click.echo(f"no posts in {name}")
        return
    click.echo(
        f"{synced.new} new, {synced.changed} changed, {synced.unchanged} unchanged; {synced.new + synced.changed} to tag"
    )


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def worker(options: tuple[str, ...]) -> None:
    """Tag posts until Ctrl-C or SIGTERM; takes the options of `onerow worker`, such as --until-idle."""
    with _opened() as settings:
        import ai_tagger.app  # noqa: F401  (a wrong setting is an error here, not in the worker)

        check_writable(settings)  # a worker would try again for ever
    click.echo(f"tags with {settings.endpoint or 'the offline tagger'}", err=True)
    os.execv(sys.executable, [sys.executable, "-m", "onerow", "worker", "ai_tagger.app", *options])


@main.command()
@click.argument("post_ids", nargs=-1, metavar="[POST_ID]...")
@click.option("--account", help="All posts of an account.")
@click.option("--workspace", help="The workspace of the account, if several have one of this name.")
@click.option("--failed", is_flag=True, help="All posts whose job has failed: retry the jobs.")
@click.option("--all", "everything", is_flag=True, help="All posts, for a new model or new tags.")
@click.option("--yes", is_flag=True, help="Do not ask before --all.")
def retag(
    post_ids: tuple[str, ...], account: str | None, workspace: str | None, failed: bool, everything: bool, yes: bool
) -> None:
    """Tag posts again, whether they were tagged or not."""
    if not (post_ids or account or failed or everything):
        raise click.UsageError("say which posts: ids, --account NAME, --failed or --all")
    if workspace and not account:
        raise click.UsageError("--workspace needs --account NAME")
    with _opened() as settings:
        from ai_tagger import posts

        check_writable(settings)
        if everything and not yes:
            model = settings.endpoint or "the offline tagger"
            click.confirm(f"tag the posts of all workspaces again, with {model}?", abort=True, err=True)
        count = 0
        if post_ids or account or everything:
            count = posts.retag(settings, post_ids, account=account, workspace=workspace, everything=everything)
        count += posts.retry_failed(settings) if failed else 0
    click.echo(f"{count} post(s) to tag")


@main.command()
@click.option("--account", help="Of this account only.")
@click.option("--workspace", help="Of this workspace only.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="Most posts to show.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with the whole text.")
def posts(account: str | None, workspace: str | None, limit: int, as_json: bool) -> None:
    """List posts with their ids and tags, the newest first."""
    with _opened() as settings:
        from ai_tagger.report import list_posts

        rows = list_posts(settings, limit, account=account, workspace=workspace)
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    from ai_tagger.tables import post_line

    for row in rows:
        click.echo(post_line(row))


@main.command()
@click.option("--workspace", help="Of this workspace only.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def report(workspace: str | None, as_json: bool) -> None:
    """Show tags by account, cost and backlog: all accounts for the service, those of its workspaces for a member."""
    with _opened() as settings:
        from ai_tagger.report import as_json_text
        from ai_tagger.report import report as read_report

        found = read_report(settings, workspace)
    if as_json:
        click.echo(as_json_text(found))
        return
    from ai_tagger.tables import print_report

    print_report(found)


@main.command()
@click.option("--half", type=click.Choice(["held_out", "development"]), default="held_out", show_default=True)
def evaluate(half: str) -> None:
    """Print precision and recall of the offline tagger on the labelled posts, beside two baselines."""
    from ai_tagger import evaluation

    click.echo(evaluation.as_markdown(evaluation.evaluate(half)))
