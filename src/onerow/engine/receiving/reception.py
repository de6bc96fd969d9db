"""All receivers of one inbox in a worker, and what they share."""

from collections.abc import Sequence

from onerow.core.errors import InboxUnavailable
from onerow.engine.control.inbox_counts import InboxState
from onerow.engine.queue.queue import Queue
from onerow.engine.receiving.follower import WorkFollower
from onerow.engine.receiving.receiver import WAIT, Receiver
from onerow.ports import Inbox, MessageQueue


class Reception:
    """The receivers of one inbox, and the follower that holds its messages if they are acknowledged after the work."""

    def __init__(self, queue: Queue, inbox: Inbox, worker: str, wait: float = WAIT) -> None:
        self._queue = queue
        self._inbox = inbox
        self._worker = worker
        self.follower: WorkFollower | None = None
        count = 1
        if isinstance(inbox, MessageQueue):
            count = inbox.receivers
            if inbox.hold_for:
                self.follower = WorkFollower(queue, inbox, worker)
        self.receivers: Sequence[Receiver] = [Receiver(queue, inbox, worker, self.follower, wait) for _ in range(count)]

    def report(self) -> InboxState:
        """Return the inbox as this worker sees it; report a receiver that hangs."""
        for receiver in self.receivers:
            receiver.report_hung()
        errors = [receiver.error for receiver in self.receivers]
        if self.follower is not None:
            errors.append(self.follower.error)
        return InboxState(self._inbox.name, next(filter(None, errors), ""))

    def open(self) -> None:
        """Check the inbox's settings, if it answers now."""
        if isinstance(self._inbox, MessageQueue):
            try:
                self._inbox.check()
            except InboxUnavailable:
                pass  # shown and retried by the receivers

    def interrupt(self) -> None:
        """End the wait of the receivers' current rounds."""
        self._inbox.interrupt()

    def close(self) -> None:
        """Close the inbox, after the receivers have ended."""
        self._inbox.close()
