"""A folder as an inbox: any program drops *.json files, and each becomes a task.

Files that are taken move to archive/, files that can't be read to rejected/ with a .reason file beside them. The name
of a task's file is never used as a path: only names found in the folder itself are opened.
"""

import errno
import heapq
import logging
import os
import re
import stat
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from pathlib import Path
from time import monotonic
from uuid import uuid4

import msgspec

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput, InboxUnavailable
from onerow.core.messages import BadMessage, CancelTask, Message, Request
from onerow.core.sizes import Size, parse_size
from onerow.inboxes.folder_jobs import read_job, read_list
from onerow.inboxes.folder_watch import watch_folder
from onerow.inboxes.locks import SUFFIX as LOCK
from onerow.inboxes.locks import FileLocks, replace_file
from onerow.inboxes.pipeline_option import pipeline_name
from onerow.pipelines.pipeline import Pipeline

log = logging.getLogger("onerow")

_BATCH = 100
_LISTS = (".txt", ".m3u")
_CANCEL = ".cancel"
_SUFFIXES = (".json", *_LISTS, _CANCEL)
_MOST_NAME = 200
_MOST_KNOWN = 50_000
"""Files that one listing keeps; so a folder with millions of files needs no more memory, and few listings."""
_DRAFT = re.compile(r"\.[0-9a-f]{32}\.tmp")
_DRAFT_FOR = 3600.0  # seconds after which a draft is a leftover of a killed process


class _Released(msgspec.Struct, frozen=True):
    """A file that is left alone until a monotonic time. deliveries: how often it will have been delivered then."""

    until: float
    deliveries: int


class FolderInbox:
    """Receive tasks from a folder.

    path: the absolute path of the folder. pipeline: for files that name none. settle: how long a file that is not
    complete JSON may still be in writing. interval: how often to look without a notification. timezone: for times
    without an offset; by default the host's. owners: user ids or names whose files are taken; by default any. max_size:
    the largest file. keep: whether taken files are kept in archive/ or deleted. item_field: the field of the payload
    that an item of a list becomes. read: your own function from a message to a request. watch: use file notifications
    if watchfiles is installed; set it to False on a network share.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        pipeline: Pipeline | str | None = None,
        settle: Duration = "5s",
        interval: Duration = "2s",
        timezone: tzinfo | None = None,
        owners: Collection[int | str] | None = None,
        max_size: Size = "1MB",
        keep: bool = True,
        item_field: str = "url",
        read: Callable[[Message], Request] | None = None,
        watch: bool = True,
    ) -> None:
        folder = Path(path).expanduser()
        if not folder.is_absolute():
            raise BadInput(f"the folder {str(path)!r} must be an absolute path", field="folder")
        self.folder: Path = Path(os.path.normpath(folder))
        self._root = str(self.folder)
        self.archive: Path = self.folder / "archive"
        self.rejected: Path = self.folder / "rejected"
        self.pipeline = pipeline
        self._pipeline = pipeline_name(pipeline)
        self._settle = parse_duration(settle, "settle").total_seconds()
        self._interval = parse_duration(interval, "interval").total_seconds()
        self._timezone = timezone
        self._owners = None if owners is None else frozenset(_user_id(owner) for owner in owners)
        self._max_size = parse_size(max_size, "max_size")
        self._keep = keep
        self._item_field = item_field
        self._own_read = read
        self._locks = FileLocks(self.folder)
        self._known: deque[str] = deque()
        self._look_at = 0.0
        self._released: dict[str, _Released] = {}
        self._notified = threading.Event()
        self._interrupted = False
        self._watch = watch
        self._watching: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        return f"folder:{self.folder}"

    # ── the port ──

    def receive(self, wait: float) -> list[Message]:
        deadline = monotonic() + wait
        try:
            self._open()
            while True:
                if messages := self._next():
                    return messages
                rest = min(self._look_at, deadline) - monotonic()
                if self._notified.wait(max(0.0, rest)):
                    self._notified.clear()
                    self._look_at = 0.0
                if self._interrupted or monotonic() >= deadline:
                    self._interrupted = False
                    return []
        except OSError as error:
            raise InboxUnavailable(f"{self.folder}: {error.strerror or error}") from error

    def read(self, message: Message) -> Request:
        if "problem" in message.attributes:
            raise BadMessage(message.attributes["problem"], field="file")
        if self._own_read is not None:
            return self._own_read(message)
        name = message.attributes["file"]
        if name.endswith(_CANCEL):
            job = message.body.strip() or name.removesuffix(_CANCEL).removesuffix(".json")
            return CancelTask(job, message.sent_at)
        if name.endswith(_LISTS):
            return read_list(message, self._pipeline, self._item_field)
        return read_job(message, self._pipeline, self._item_field, self._timezone)

    def acknowledge(self, messages: Sequence[Message]) -> None:
        with self._as_unavailable():
            for message in messages:
                if self._keep:
                    self._move(message, self.archive)
                else:
                    self._remove(message)
                self._locks.release(message.attributes["file"])

    def reject(self, message: Message, reason: str) -> None:
        with self._as_unavailable():
            kept = self._move(message, self.rejected)
            if kept is not None:
                replace_file(kept.with_name(f"{kept.name}.reason"), f"{reason}\n".encode())
            self._locks.release(message.attributes["file"])

    def release(self, messages: Sequence[Message], after: float) -> None:
        for message in messages:
            name = message.attributes["file"]
            # A marker may come before its job. It has not been delivered in vain while files of the listing are left.
            deliveries = message.deliveries + (not self._known)
            self._released[name] = _Released(monotonic() + after, deliveries)
            with suppress(OSError):
                self._locks.release(name)

    def interrupt(self) -> None:
        self._interrupted = True
        self._notified.set()

    def close(self) -> None:
        if self._watching is not None:
            self._watching()
            self._watching = None

    # ── taking files ──

    def _open(self) -> None:
        if not self.folder.is_dir():
            log.warning("inbox %s: this folder did not exist; it is created", self.name)
        for folder in (self.folder, self.archive, self.rejected):
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        if self._watch and self._watching is None:
            self._watching = watch_folder(self.folder, _SUFFIXES, self._notified.set)

    def _next(self) -> list[Message]:
        """Lock and read the oldest files, at most one batch."""
        if not self._known and monotonic() >= self._look_at:
            self._known.extend(self._look())
        messages: list[Message] = []
        if not self._known:
            return messages
        try:
            with self._locks.batch() as now:
                while self._known and len(messages) < _BATCH:
                    name = self._known.popleft()
                    taken = self._locks.take(name, now)
                    if taken and (message := self._read_file(name, now, taken)) is not None:
                        messages.append(message)
        except OSError:
            self.release(messages, 0.0)
            raise
        return messages

    def _look(self) -> list[str]:
        """List the folder once: cancel markers, then the oldest files. They are taken before it is listed again."""
        self._look_at = monotonic() + self._interval
        leftovers: list[str] = []
        released, self._released = self._released, {}
        found = heapq.nsmallest(_MOST_KNOWN, self._waiting(released, leftovers))
        if leftovers:
            with self._locks.batch() as now:
                for name in leftovers:
                    self._remove_leftover(name, now)
        return [name for _, _, name in found]

    def _waiting(self, released: dict[str, _Released], leftovers: list[str]) -> Iterator[tuple[bool, int, str]]:
        """Yield the files that can be taken as (is no marker, time of change, name); collect what may be a leftover."""
        clock = monotonic()
        with os.scandir(self.folder) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(LOCK) or _DRAFT.fullmatch(name):
                    leftovers.append(name)
                    continue
                if name.startswith(".") or not name.endswith(_SUFFIXES):
                    continue
                if name in released:
                    self._released[name] = released[name]
                    if released[name].until > clock:
                        continue
                with suppress(FileNotFoundError):
                    if not entry.is_dir(follow_symlinks=False):
                        yield not name.endswith(_CANCEL), entry.stat(follow_symlinks=False).st_mtime_ns, name

    def _remove_leftover(self, name: str, now: float) -> None:
        """Remove a draft or a lock that a killed process has left."""
        if name.endswith(LOCK):
            self._locks.remove_leftover(name, now)
            return
        draft = self.folder / name
        with suppress(FileNotFoundError):
            if now - draft.lstat().st_mtime > _DRAFT_FOR:
                draft.unlink()

    def _read_file(self, name: str, now: float, deliveries: int) -> Message | None:
        """Return a locked file as a message; None, with the lock released, if it is gone or still being written.

        deliveries: of the file, this one included: 2 if a process that had locked the file has died.
        """
        try:
            descriptor = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            self._locks.release(name)  # another process has taken it since the folder was listed
            return None
        except OSError as error:
            return self._problem(
                name, "is a symbolic link" if error.errno == errno.ELOOP else f"can't be opened: {error.strerror}"
            )
        with open(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if problem := self._problem_of(name, facts):
                return self._problem(name, problem, _stamp(facts))
            content = file.read(self._max_size + 1)
        sent_at = datetime.fromtimestamp(facts.st_mtime, UTC)
        drop = sha256(f"{facts.st_ino}\n{facts.st_mtime_ns}\n".encode() + content).hexdigest()[:32]
        try:
            body = content.decode("utf-8-sig")  # some programs begin a file with a byte order mark
            if name.endswith(".json"):
                msgspec.json.decode(body)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            if now - facts.st_mtime < self._settle:
                self._locks.release(name)  # it is read again at the next look
                return None
            return self._problem(name, f"is not complete JSON after {self._settle:g} s: {error}", _stamp(facts))
        released = self._released.get(name)
        deliveries = deliveries if released is None else max(deliveries, released.deliveries)
        return Message(drop, body, sent_at, deliveries, {"file": name}, _stamp(facts))

    def _problem_of(self, name: str, facts: os.stat_result) -> str:
        if name.startswith("-") or not name.isprintable() or len(name) > _MOST_NAME:
            return "has a name that starts with '-', is too long or has control characters"
        if not stat.S_ISREG(facts.st_mode):
            return "is not a regular file"
        if self._owners is not None and facts.st_uid not in self._owners:
            return f"belongs to user {facts.st_uid}, who is not among owners="
        if facts.st_size > self._max_size:
            return f"has {facts.st_size:,} bytes; at most {self._max_size:,} are allowed"
        return ""

    def _problem(self, name: str, problem: str, receipt: "_Stamp | None" = None) -> Message:
        return Message(f"file {name}", "", attributes={"file": name, "problem": f"{name} {problem}"}, receipt=receipt)

    # ── moving files ──

    def _is_unchanged(self, message: Message) -> bool:
        """Whether the file is still the one that was read: its writer may have replaced it since."""
        try:
            facts = os.lstat(self._path(message.attributes["file"]))
        except FileNotFoundError:
            return False
        return message.receipt is None or _stamp(facts) == message.receipt

    def _move(self, message: Message, to: Path) -> Path | None:
        """Move a file into a folder under a free name; return its new path, or None if it is gone or another."""
        name = message.attributes["file"]
        kept = name.lstrip("-.")
        target = f"{to}/{kept}"
        if os.path.lexists(target) or not kept:
            target = f"{to}/{uuid4().hex[:8]}-{kept}"
        if not self._is_unchanged(message):
            return None
        try:
            os.rename(self._path(name), target)
        except FileNotFoundError:
            return None
        return Path(target)

    def _remove(self, message: Message) -> None:
        if self._is_unchanged(message):
            with suppress(FileNotFoundError):
                os.unlink(self._path(message.attributes["file"]))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _as_unavailable(self) -> "_AsUnavailable":
        return _AsUnavailable(self.folder)


class _AsUnavailable:
    """Raise file errors as InboxUnavailable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise InboxUnavailable(f"{self._folder}: {error.strerror or error}") from error


_Stamp = tuple[int, int, int]


def _stamp(facts: os.stat_result) -> _Stamp:
    """Return what differs between a file and one that replaces it."""
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _user_id(owner: int | str) -> int:
    if isinstance(owner, int):
        return owner
    import pwd

    try:
        return pwd.getpwnam(owner).pw_uid
    except KeyError:
        raise BadInput(f"owners: there is no user {owner!r} on this host", field="owners") from None


def drop(folder: str | Path, job: object, *, name: str | None = None) -> Path:
    """Write a job file into a folder inbox: complete under its name, or not at all.

    folder: the path of the inbox. job: any JSON value. name: the file's name; by default a new one.
    """
    path = Path(folder) / (name or f"{uuid4().hex}.json")
    replace_file(path, msgspec.json.encode(job))
    return path
