"""The command `tagger`."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import click
import msgspec
import psycopg

from ai_tagger.settings import Settings
from onerow import OnerowError
from onerow.core.errors import with_fix
from onerow.engine.output.masking import NO_SECRETS


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Tag synced posts in batches, with a language model or offline.

    Configured by the environment: TAGGER_DATABASE_URL, and TAGGER_MODEL_URL, TAGGER_MODEL, TAGGER_API_KEY for a model.
    Without TAGGER_MODEL_URL the offline tagger is used. The README lists the others.
    """


@contextmanager
def _opened() -> Iterator[Settings]:
    """Yield the settings; errors of the app and of PostgreSQL become messages."""
    try:
        yield Settings.of_environment()
    except OnerowError as error:
        raise click.ClickException(with_fix(error)) from None
    except psycopg.Error as error:
        fix = (
            "run as the owner of the database: tagger setup" if isinstance(error, psycopg.errors.UndefinedTable) else ""
        )
        message = NO_SECRETS.text(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
        raise click.ClickException(
            f"PostgreSQL (TAGGER_DATABASE_URL): {message}{fix and f'. To fix it, {fix}'}"
        ) from None


@main.command()
@click.option(
    "--member", "members", multiple=True, metavar="ROLE=WORKSPACE", help="Let a role read a workspace; repeatable."
)
def setup(members: tuple[str, ...]) -> None:
    """Create tables, roles, row-level security, the view ai_tag_queue and cascades; safe to run again."""
    with _opened() as settings:
        from ai_tagger.database import add_member, set_up

        set_up(settings)
        click.echo(f"ready: members read as {settings.members_role}, workers write as {settings.service_role}")
        for member in members:
            role, _, workspace = member.partition("=")
            add_member(settings, role, workspace)
            click.echo(f"{role} reads the workspace {workspace}")


@main.command()
@click.argument("posts", type=click.File(encoding="utf-8"), default="-")
def sync(posts: IO[str]) -> None:
    """Store posts from JSON Lines and add their jobs, in one transaction.

    A line: {"workspace": "…", "account": "…", "id": "…", "text": "…"}. A post that is known and unchanged gets no job.
    """
    with _opened() as settings:
        from ai_tagger.posts import read_posts, sync_posts

        synced = sync_posts(settings, read_posts(posts, posts.name))
    click.echo(
        f"{synced.new} new, {synced.changed} changed, {synced.unchanged} unchanged; {synced.new + synced.changed} to tag"
    )


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def worker(options: tuple[str, ...]) -> None:
    """Tag posts until Ctrl-C or SIGTERM; takes the options of `onerow worker`, such as --until-idle."""
    with _opened():
        import ai_tagger.app  # noqa: F401  (a wrong setting is an error here, not in the worker)
    os.execv(sys.executable, [sys.executable, "-m", "onerow", "worker", "ai_tagger.app", *options])


@main.command()
@click.argument("post_ids", nargs=-1, metavar="[POST_ID]...")
@click.option("--account", help="All posts of an account.")
@click.option("--failed", is_flag=True, help="All posts whose job has failed: retry the jobs.")
def retag(post_ids: tuple[str, ...], account: str | None, failed: bool) -> None:
    """Tag posts again, whether they were tagged or not."""
    if not (post_ids or account or failed):
        raise click.UsageError("say which posts: ids, --account NAME or --failed")
    with _opened() as settings:
        from ai_tagger import posts

        count = posts.retag(settings, post_ids, account=account) if post_ids or account else 0
        count += posts.retry_failed(settings) if failed else 0
    click.echo(f"{count} post(s) to tag")


@main.command()
@click.option("--account", help="Of this account only.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="Most posts to show.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def posts(account: str | None, limit: int, as_json: bool) -> None:
    """List posts with their ids and tags, the newest first."""
    with _opened() as settings:
        from ai_tagger.report import list_posts

        rows = list_posts(settings, account, limit)
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        tags = "not tagged yet" if row["tags"] is None else ", ".join(row["tags"]) or "no tags"
        click.echo(
            f"{row['id']}  {row['account']}  [{tags}]{'' if row['current'] in (True, None) else ' of an older text'}  {row['text']}"
        )


@main.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def report(as_json: bool) -> None:
    """Show tags by account, cost and backlog: all accounts for the service, those of its workspaces for a member."""
    with _opened() as settings:
        from ai_tagger.report import report as read_report

        accounts = read_report(settings)
    if as_json:
        click.echo(msgspec.json.encode(accounts).decode())
        return
    from ai_tagger.tables import print_report

    print_report(accounts)


@main.command()
@click.option("--half", type=click.Choice(["held_out", "development"]), default="held_out", show_default=True)
def evaluate(half: str) -> None:
    """Print precision and recall of the offline tagger on the labelled posts, beside two baselines."""
    from ai_tagger import evaluation

    click.echo(evaluation.as_markdown(evaluation.evaluate(half)))
