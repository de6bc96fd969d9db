"""A program that works until idle and receives; its reading function ends the process at the message 'dies'."""

import os
import sys
from typing import Any

from onerow import Pipeline, Queue, Worker
from onerow.core.addition import Addition
from onerow.core.messages import AddTasks, Message, Request
from onerow.inboxes import FolderInbox, SqsInbox
from onerow.ports import Inbox

jobs = Pipeline("jobs")


@jobs.phase
async def run(job: Any) -> Any:
    return job


def read(message: Message) -> Request:
    if "dies" in message.body:
        os._exit(9)
    return AddTasks("jobs", (Addition(message.body),))


def main(store: str, place: str) -> None:
    queue = Queue(store)
    inbox: Inbox
    if place.startswith("http"):
        inbox = SqsInbox(place, read=read, visibility="1s")
    else:
        inbox = FolderInbox(place, read=read, watch=False)
    queue.receive(inbox)
    Worker(queue, [jobs], until_idle=True, grace="1s").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
