"""A program that serves webhooks on a given port and kills itself before or after it stores a row, or never."""

import sys

import uvicorn

from onerow import Queue
from onerow.asgi import webhook
from onerow.inboxes.signatures import GitHub
from onerow.inboxes.webhook import WebhookInbox
from tests.inboxes.killed_receiver import dying, jobs

SECRET = "a secret of the sender"


def main(store: str, port: str, when: str) -> None:
    queue = Queue(store)
    queue.publish(jobs)
    if when != "never":
        store_object = queue.store
        store_object.insert = dying(store_object.insert, when)  # type: ignore[method-assign]
    app = webhook(queue, WebhookInbox("test", GitHub(SECRET), pipeline="jobs"))
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
