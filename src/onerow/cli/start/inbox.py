"""`onerow inbox INBOX`: receive tasks without running them."""

import logging
import sys

import click

from onerow.cli.session import Session, with_session
from onerow.cli.start.webhook import SCHEMES, make_inbox, serve
from onerow.cli.stop_signals import on_stop_signal
from onerow.core.errors import BadInput
from onerow.engine.queue.scope import plan_of
from onerow.engine.receiving.receiver import Receiver
from onerow.engine.worker import Worker
from onerow.ports import MessageQueue
from onerow.wiring import open_inbox


@click.command("inbox")
@click.argument("url", metavar="INBOX")
@click.argument("name", required=False)
@click.option("--pipeline", help="The pipeline of messages that name none.")
@click.option("--once", is_flag=True, help="Receive the messages that are there, then exit.")
@click.option("--scheme", type=click.Choice(list(SCHEMES)), help="webhook: how the sender signs its requests.")
@click.option(
    "--secret-env", "secrets", multiple=True, metavar="VARIABLE",
    help="webhook: environment variable that has the secret; repeatable, while one secret replaces another.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="webhook: address to listen on.")
@click.option("--port", default=8002, show_default=True, type=click.IntRange(0, 65535), help="webhook: port.")
@with_session
def command(
    session: Session,
    url: str,
    name: str | None,
    pipeline: str | None,
    once: bool,
    scheme: str | None,
    secrets: tuple[str, ...],
    host: str,
    port: int,
) -> None:
    """Receive tasks from INBOX (folder:///absolute/path, folder://path or sqs:QUEUE_URL) until stopped.

    Each message becomes a row of the store and is then acknowledged; workers elsewhere run the tasks. The pipelines must
    be published: onerow publish APP. A worker receives by itself if its app calls queue.receive(INBOX).

    onerow inbox webhook NAME serves signed HTTP requests: --scheme and --secret-env are required.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)  # else it logs where it found credentials
    queue = session.queue
    if pipeline is not None:
        plan_of(queue, pipeline)  # an unknown name is an error here, not of each message
    if url == "webhook":
        if once:
            raise BadInput("a webhook has no messages that wait", fix="leave out --once", field="once")
        serve(queue, make_inbox(name, scheme, secrets, pipeline), host, port, session.out.aside)
        return
    if name is not None or scheme is not None or secrets:
        raise BadInput("NAME, --scheme and --secret-env are for: onerow inbox webhook NAME", field="inbox")
    inbox = open_inbox(url, pipeline=pipeline)
    if once:
        if isinstance(inbox, MessageQueue) and inbox.hold_for:
            raise BadInput(
                "--once runs no tasks, so it can't wait for them", fix="receive in fast mode: ?mode=fast", field="once"
            )
        receiver = Receiver(queue, inbox, "onerow-inbox")
        counts = receiver.receive_available()
        receiver.close(queue.store.now())
        inbox.close()
        if session.out.as_json:
            session.out.json(counts)
        else:
            session.out.line(
                f"received {counts.received:,}: added {counts.added:,}, found {counts.found:,}, "
                f"duplicate {counts.duplicate:,}, rejected {counts.rejected:,}, released {counts.released:,}"
            )
        return
    queue.inboxes.append(inbox)
    worker = Worker(queue)
    on_stop_signal(lambda: worker.stop(by_signal=True))
    session.out.aside(f"receiving from {inbox.name} into {queue.url}; Ctrl-C stops")
    sys.exit(worker.run())
