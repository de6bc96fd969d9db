"""The commands that a store sends to its server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from onerow.stores.mongo import MongoStore

Document = dict[str, Any]


class Sent(CommandListener):
    """Collects the commands of a client in the order in which they are sent."""

    def __init__(self) -> None:
        self.commands: list[Document] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.commands.append(dict(event.command))

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


@contextmanager
def recorded(url: str, **options: Any) -> Iterator[tuple[MongoStore, list[Document]]]:
    """A prepared store, and the list of the commands that it sends from then on."""
    sent = Sent()
    with MongoClient[Document](url, event_listeners=[sent]) as client:
        store = MongoStore.of(client.get_default_database()["task_queue"], **options)
        store.prepare()
        sent.commands.clear()
        try:
            yield store, sent.commands
        finally:
            store.close()
