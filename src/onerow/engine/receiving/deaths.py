"""Find messages that end the process that reads them: each delivery would end another one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from onerow.core.messages import BadMessage, Message
from onerow.engine.control import notes
from onerow.ports import Note, Store

READING = "reading"
"""Kind of the notes."""
_MOST_DEATHS = 3
_MOST_KNOWN = 100
Begun = dict[str, int]
"""How often the reading of a message has begun and not ended, by message id; the oldest first."""


class ReadingNote:
    """The note of one inbox about messages whose reading has begun and not ended, in any process.

    Only messages that were delivered before are noted: the first delivery of a message costs nothing.
    """

    def __init__(self, store: Store, inbox: str) -> None:
        self._store = store
        self._inbox = inbox

    def parts(self, messages: Sequence[Message]) -> list[Sequence[Message]]:
        """Return the messages in parts to be stored one after the other: last, each alone, those that are noted."""
        if all(message.deliveries < 2 for message in messages):
            return [messages]
        begun = _begun(notes.find(self._store, READING, self._inbox))
        alone = [message for message in messages if message.message_id in begun]
        others = [message for message in messages if message.message_id not in begun]
        return [part for part in (others, *([message] for message in alone)) if part]

    @contextmanager
    def during(self, message: Message) -> Iterator[None]:
        """Note the message while it is read; raise BadMessage if its reading has not ended too often."""
        if message.deliveries < 2:
            yield
            return
        self._begin(message.message_id)
        try:
            yield
        finally:
            self._change(lambda begun: begun.pop(message.message_id, None) is not None)

    def _begin(self, message_id: str) -> None:
        deaths = 0

        def count(begun: Begun) -> bool:
            nonlocal deaths
            deaths = begun.pop(message_id, 0)
            if deaths < _MOST_DEATHS:
                begun[message_id] = deaths + 1
            return True

        self._change(count)
        if deaths >= _MOST_DEATHS:
            raise BadMessage(f"{deaths} processes ended while they read it")

    def _change(self, change: Callable[[Begun], bool]) -> None:
        """change: changes the counts, and returns whether they are to be written."""

        def changed(stored: Note | None) -> object:
            begun = _begun(stored)
            return list(begun.items())[-_MOST_KNOWN:] if change(begun) else None

        notes.update(self._store, READING, self._inbox, changed)


def _begun(note: Note | None) -> Begun:
    return {} if note is None else dict(msgspec.convert(note.body, list[tuple[str, int]]))
