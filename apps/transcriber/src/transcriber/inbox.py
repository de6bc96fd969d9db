"""The folder queue/: what its files ask for becomes jobs. Files, locks and markers are onerow's folder inbox."""

from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from onerow import Addition, BadInput
from onerow.core.messages import AddTasks, BadMessage, Message, Request
from onerow.core.times import spell
from onerow.inboxes import FolderInbox
from transcriber.jobs import addition_of, job_of
from transcriber.settings import Settings


class QueueFolder(FolderInbox):
    """The project's queue/ folder. Taken files go to archive/ beside it, or are deleted."""

    def __init__(self, settings: Settings, timezone: tzinfo | None = None) -> None:
        super().__init__(
            settings.folder("queue"),
            pipeline="transcribe",
            interval=settings.interval,
            keep=settings.keep_taken,
            timezone=timezone,
        )
        self.archive = settings.folder("archive")
        self._engine = settings.engine
        self._zone = timezone
        self._positions: dict[str, int] = {}  # of the files in their batch, the oldest first

    def receive(self, wait: float) -> list[Message]:
        messages = super().receive(wait)
        self._positions = {message.message_id: number for number, message in enumerate(messages)}
        return messages

    def read(self, message: Message) -> Request:
        request = super().read(message)
        if not isinstance(request, AddTasks):
            return request
        # Rows of one batch are stored at one time; a millisecond between them keeps the order of their files.
        delay = timedelta(milliseconds=self._positions.get(message.message_id, 0))
        return msgspec.structs.replace(request, additions=tuple(self._job(each, delay) for each in request.additions))

    def _job(self, given: Addition, delay: timedelta) -> Addition:
        if not isinstance(given.payload, dict):
            raise BadMessage(f"a job is a JSON object, not {given.payload!r}", field="file")
        try:
            job = job_of(given.payload, self._engine)
        except BadInput as error:
            raise BadMessage(str(error), fix=error.fix, field=error.field) from None
        if job.timestamp is not None:
            job = msgspec.structs.replace(job, timestamp=self._with_offset(job.timestamp))
        return addition_of(job, given if given.run_at else msgspec.structs.replace(given, delay=delay))

    def _with_offset(self, text: str) -> str:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise BadMessage(f"timestamp {text[:60]!r} is not a time", field="timestamp") from None
        if moment.tzinfo is None:
            moment = moment.astimezone() if self._zone is None else moment.replace(tzinfo=self._zone)
        return spell(moment.astimezone(UTC))
