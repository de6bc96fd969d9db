"""A program that receives from SQS and kills itself at a given point: before or after the row or the delete."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from onerow import Pipeline, Queue, Worker
from onerow.engine.receiving.receiver import Receiver
from onerow.inboxes.sqs import SqsInbox

jobs = Pipeline("jobs")


@jobs.phase
async def run(job: Any) -> Any:
    return job


def dying(function: Callable[..., Any], when: str) -> Callable[..., Any]:
    """Return a function that kills this process before or after the call."""

    def call(*args: Any, **terms: Any) -> Any:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        function(*args, **terms)
        os.kill(os.getpid(), signal.SIGKILL)

    return call


def main(store: str, queue_url: str, mode: Any, point: str) -> None:
    queue = Queue(store)
    queue.publish(jobs)
    inbox = SqsInbox(queue_url, pipeline="jobs", mode=mode, visibility="2s")
    when, _, what = point.partition(" ")
    target: Any = queue.store if what == "row" else inbox
    name = "insert" if what == "row" else "acknowledge"
    setattr(target, name, dying(getattr(target, name), when))
    if mode == "fast":
        receiver = Receiver(queue, inbox, "killed")
        while True:
            receiver.tick(queue.store.now())
    queue.inboxes.append(inbox)
    Worker(queue, [jobs]).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
