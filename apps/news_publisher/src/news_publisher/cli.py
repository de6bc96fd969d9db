"""The command `news`."""

import json
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click
from pymongo.errors import PyMongoError

from news_publisher.app import App
from news_publisher.config import Config
from onerow import OnerowError
from onerow.engine.output.masking import NO_SECRETS


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Buffer crawled news in MongoDB and publish each article once to Discord.

    Configured by the environment: NEWS_MONGO_URL, and NEWS_DISCORD_WEBHOOK, or NEWS_DISCORD_TOKEN with
    NEWS_DISCORD_CHANNEL. The README lists the others.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)


@contextmanager
def _opened() -> Iterator[App]:
    """Open the application; its errors become messages."""
    try:
        with App(Config.of_environment()) as app:
            yield app
    except OnerowError as error:
        raise click.ClickException(str(error)) from None
    except PyMongoError as error:
        message = NO_SECRETS.text(str(error).partition(" (configured timeouts")[0])
        raise click.ClickException(f"MongoDB (NEWS_MONGO_URL): {message}") from None


@main.command()
@click.option("--platform", help="Only articles of this platform.")
@click.option("--category", help="Only articles of this category.")
@click.option("--limit", default=100, show_default=True, help="Maximum number of new items.")
@click.option("--hours", default=24.0, show_default=True, help="Only articles of the last hours.")
def collect(platform: str | None, category: str | None, limit: int, hours: float) -> None:
    """Put crawled articles into the queue that were neither published nor queued before."""
    with _opened() as app:
        added = app.service.add_articles_from_db(platform, category, limit, hours)
    click.echo(f"{added} article(s) added")


@main.command()
@click.option("--once", is_flag=True, help="End when nothing is pending, instead of waiting for more.")
@click.option("--batch", default=10, show_default=True, help="Articles to take at a time.")
def publish(once: bool, batch: int) -> None:
    """Publish what is pending, until Ctrl-C or SIGTERM: the article at hand is finished, the others are handed back."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # In a thread: the signal may interrupt this one while it holds the lock of the event.
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
    with _opened() as app:
        config = Config.of_environment()
        results = app.publisher(stop).run(once=once, limit=batch, max_retries=config.max_retries)
    click.echo(", ".join(f"{count} {result}" for result, count in sorted(results.items())) or "nothing to publish")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(as_json: bool) -> None:
    """Show how many articles stand where, and those that a person must decide about."""
    with _opened() as app:
        counts = app.service.get_queue_status()
        doubtful = app.queue.maybe_published()
        failed = app.queue.failed(20)
    if as_json:
        held = [{"unique_id": item.unique_id, "title": item.title, "error": item.error_message} for item in doubtful]
        click.echo(json.dumps({**counts, "maybe_published": held}, ensure_ascii=False))
        return
    for name, count in counts.items():
        click.echo(f"{name:<12}{count:>6}")
    for item in failed:
        click.echo(f"\n{item.unique_id}  {item.title}\n  failed {item.retry_count} time(s): {item.error_message}")


@main.command()
@click.option("--max-retries", default=3, show_default=True, help="Leave alone what failed so often.")
def retry(max_retries: int) -> None:
    """Make failed articles pending again, each after a back-off."""
    with _opened() as app:
        revived = app.service.retry_failed_articles(max_retries)
    click.echo(f"{revived} article(s) pending again")


@main.command()
@click.option("--older-than", default="0s", show_default=True, help="Only what was published so long ago: 7d, 12h.")
def clean(older_than: str) -> None:
    """Remove published articles from the queue; they stay known and are not published again."""
    with _opened() as app:
        gone = app.queue.clean_completed(older_than)
    click.echo(f"{gone} article(s) removed")


@main.command()
@click.argument("unique_id")
@click.option("--published", "message_id", metavar="MESSAGE_ID", help="It is on Discord, as this message.")
@click.option("--again", is_flag=True, help="It is not on Discord: publish it.")
def decide(unique_id: str, message_id: str | None, again: bool) -> None:
    """Say whether an article that may have been published was."""
    if again == (message_id is not None):
        raise click.UsageError("say either --published MESSAGE_ID or --again")
    with _opened() as app:
        if message_id is None:
            item = app.queue.decide_again(unique_id)
        else:
            item = app.queue.decide_published(unique_id, message_id)
            app.published.add(item.unique_id, item.url, message_id, item.updated_at)
    click.echo(f"{item.unique_id} is {item.status}")
