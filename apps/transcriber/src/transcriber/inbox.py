"""The folder queue/: what its files ask for becomes jobs. Files, locks and markers are onerow's folder inbox."""

from datetime import UTC, datetime, timedelta, tzinfo
from time import sleep

import msgspec

from onerow import Addition, BadInput
from onerow.core.times import spell
from onerow.inboxes import AddTasks, BadMessage, FolderInbox, Message, Request
from transcriber.jobs import addition_of, job_of
from transcriber.settings import Settings

_APART = timedelta(milliseconds=1)


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
        self._read = 0  # jobs of the present batch that were read, the oldest first

    def receive(self, wait: float) -> list[Message]:
        sleep(_APART.total_seconds() * self._read)  # the rows of this batch come after those of the one before
        self._read = 0
        return super().receive(wait)

    def read(self, message: Message) -> Request:
        request = super().read(message)
        if not isinstance(request, AddTasks):
            return request
        return msgspec.structs.replace(request, additions=tuple(map(self._job, request.additions)))

    def _job(self, given: Addition) -> Addition:
        if not isinstance(given.payload, dict):
            raise BadMessage(f"a job is a JSON object, not {given.payload!r}", field="file")
        try:
            job = job_of(given.payload, self._engine)
        except BadInput as error:
            raise BadMessage(str(error), fix=error.fix, field=error.field) from None
        if job.timestamp is not None:
            job = msgspec.structs.replace(job, timestamp=self._with_offset(job.timestamp))
        # Rows of one batch are stored at one time; some time between them keeps the order of files and of lines.
        delay = _APART * self._read
        self._read += 1
        return addition_of(job, given if given.run_at else msgspec.structs.replace(given, delay=delay))

    def _with_offset(self, text: str) -> str:
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                moment = moment.astimezone() if self._zone is None else moment.replace(tzinfo=self._zone)
            return spell(moment.astimezone(UTC))
        except (ValueError, OverflowError):
            raise BadMessage(f"timestamp {text[:60]!r} is not a time", field="timestamp") from None
