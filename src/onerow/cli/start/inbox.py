"""`onerow inbox URL`: receive tasks without running them."""

import logging
import signal
import sys
from types import FrameType

import click

from onerow.cli.session import Session, with_session
from onerow.core.errors import BadInput
from onerow.engine.receiving.receiver import Receiver
from onerow.engine.worker import Worker
from onerow.ports import MessageQueue
from onerow.wiring import open_inbox


@click.command("inbox")
@click.argument("url", metavar="INBOX")
@click.option("--pipeline", help="The pipeline of messages that name none.")
@click.option("--once", is_flag=True, help="Receive the messages that are there, then exit.")
@with_session
def command(session: Session, url: str, pipeline: str | None, once: bool) -> None:
    """Receive tasks from INBOX (folder:///absolute/path, folder://path or sqs:QUEUE_URL) until stopped.

    Each message becomes a row of the store and is then acknowledged; workers elsewhere run the tasks. The pipelines must
    be published: onerow publish APP. A worker receives by itself if its app calls queue.receive(INBOX).
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    queue = session.queue
    if pipeline is not None:
        queue.plan(pipeline)  # an unknown name is an error here, not of each message
    inbox = open_inbox(url, pipeline=pipeline)
    if once:
        if isinstance(inbox, MessageQueue) and inbox.hold_for:
            raise BadInput("--once runs no tasks, so it can't wait for them; receive in fast mode", field="once")
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

    def stop(number: int, frame: FrameType | None) -> None:
        worker.stop(by_signal=True)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    session.out.aside(f"receiving from {inbox.name} into {queue.url}; Ctrl-C stops")
    sys.exit(worker.run())
