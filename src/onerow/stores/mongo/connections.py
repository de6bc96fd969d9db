"""The client of one MongoDB database, and the one door at which the driver's exceptions become ours."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import bson.errors
from bson.codec_options import CodecOptions
from pymongo import MongoClient, ReadPreference, WriteConcern, errors
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri

from onerow.core.errors import (
    BadPayload,
    BadStoreUrl,
    OnerowError,
    RetryTransaction,
    RowRefused,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from onerow.core.urls import mask_in, mask_password
from onerow.stores.mongo.documents import Document

JOURNALED = WriteConcern(w=1, j=True)
"""An acknowledged write is in the journal of the server, which stands alone. Not w='majority': a server without members
took that for granted, and lost acknowledged writes when it was killed."""
JOURNALED_BY_MOST = WriteConcern(w="majority", j=True, wtimeout=20_000)
"""An acknowledged write is in the journals of most members of a replica set."""

_WAITS = {"serverSelectionTimeoutMS": 5_000, "connectTimeoutMS": 5_000, "socketTimeoutMS": 30_000}
_IN_FLIGHT = 8
_BULK_WRITE = 25  # the wire version of MongoDB 8.0, the first to answer a bulk write operation by operation

Session = ClientSession | None

_DUPLICATE = 11000
_TOO_LARGE = frozenset({10334, 17419, 17420, 16633})
_NO_ROOM = frozenset({14031, 12500})
_NOT_ALLOWED = frozenset({13, 18, 8000})
# A member that is no primary (any more), that shuts down, or that can't answer by majority yet. pymongo knows most of them,
# but not where they stand in the answer to a single write of a batch.
_CHANGING = frozenset({6, 7, 89, 91, 133, 134, 189, 246, 262, 9001, 10107, 11600, 11602, 13435, 13436})


class Collections:
    """The collections of one store, with the concerns that its promises need here."""

    def __init__(self, client: MongoClient[Document], database: str, collection: str, bulk: bool | None) -> None:
        hello = client.admin.command("hello")
        self.client = client
        self.has_members = "setName" in hello or hello.get("msg") == "isdbgrid"
        """Whether it is a replica set (or several): writes by majority, change streams and transactions."""
        self.answers_each = hello.get("maxWireVersion", 0) >= _BULK_WRITE if bulk is None else bulk
        """Whether a bulk write can tell which of its operations found their document."""
        self.concern = JOURNALED_BY_MOST if self.has_members else JOURNALED
        found = client.get_database(
            database,
            codec_options=CodecOptions(tz_aware=False),
            read_preference=ReadPreference.PRIMARY,
            write_concern=self.concern,
            read_concern=ReadConcern("majority"),
        )
        # A second queue in the same database, under a name of its own, keeps its notes and output apart.
        family = "onerow" if collection == "task_queue" else collection
        self.database = found
        self.tasks: Collection[Document] = found[collection]
        self.notes: Collection[Document] = found[f"{family}_note"]
        self.log: Collection[Document] = found[f"{family}_log"]
        self.meta: Collection[Document] = found[f"{family}_meta"]

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """A session in which all queries read the store as of one moment; None where the server can't do that."""
        if not self.has_members:
            yield None
            return
        with self.client.start_session(snapshot=True) as session:
            yield session


class Connections:
    """The client, opened when first used and again after a fork; what the server can do."""

    def __init__(
        self, url: str, database: str | None, collection: str, check: Callable[[Collections], None], bulk: bool | None
    ) -> None:
        self.url, named, self._options = _read_url(url)
        self.database = database or named
        if not self.database:
            raise BadStoreUrl(f"{self.url} names no database; write it like mongodb://host/database", field="url")
        self.collection = collection
        self._given = url
        self._check = check
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._client: MongoClient[Document] | None = None
        self._callers: MongoClient[Document] | None = None
        self._rooms: Collections | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._checked = False
        self._bulk = bulk
        self._listeners: list[CommandListener] = []

    def use(self, client: MongoClient[Document]) -> None:
        """Go through the caller's own client instead of one of ours."""
        self._callers = client

    @contextmanager
    def open(self, *, checked: bool = True) -> Iterator[Collections]:
        """The collections, once they were found to be prepared; driver exceptions become ours."""
        try:
            with translated(self.url):
                rooms = self.rooms()
                if checked and not self._checked:
                    self._check(rooms)
                    self._checked = True
                yield rooms
        except StoreUnavailable:
            self._rooms = None  # another server may come back in its place: look again at what it is
            raise

    def rooms(self) -> Collections:
        """The collections, through a client that is opened when first needed."""
        rooms = self._rooms
        if rooms is not None and self._pid == os.getpid():
            return rooms
        with self._lock:
            self._after_fork()
            if self._client is None:
                self._client = self._callers or MongoClient(
                    self._given, appname="onerow", event_listeners=self._listeners, **self._options
                )
            client = self._client
        self._rooms = rooms = Collections(client, self.database, self.collection, self._bulk)
        return rooms

    def in_flight(self) -> ThreadPoolExecutor:
        """Threads for single operations, several at a time."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_IN_FLIGHT, thread_name_prefix="onerow-mongo")
            return self._pool

    def count_commands(self) -> Callable[[], int]:
        """A counter of what is sent from now on."""
        self.close()
        counter = _Counter()
        self._listeners.append(counter)
        return lambda: counter.seen

    def close(self) -> None:
        with self._lock:
            self._after_fork()
            client, self._client, self._rooms = self._client, None, None
            pool, self._pool = self._pool, None
            self._checked = False
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)  # a server that is away must not hold us up
        if client is not None and client is not self._callers:
            client.close()

    def _after_fork(self) -> None:
        # A client's sockets and threads stay with the parent.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._client = self._rooms = self._pool = None


class _Counter(CommandListener):
    """Counts commands; what has to do with connections is not told to it."""

    def __init__(self) -> None:
        self.seen = 0

    def started(self, event: CommandStartedEvent) -> None:
        self.seen += 1

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


def _read_url(url: str) -> tuple[str, str, dict[str, Any]]:
    """(the URL with its password masked, the database it names, waits that it leaves to us)."""
    masked = mask_password(url)
    if not url.startswith(("mongodb://", "mongodb+srv://")):
        raise BadStoreUrl(f"{masked} is no MongoDB URL; write it like mongodb://host/database", field="url")
    try:
        if url.startswith("mongodb://"):  # the other kind is looked up by DNS, so not before it is used
            parse_uri(url)
        parts = urlsplit(url)
    except (errors.PyMongoError, ValueError) as error:
        raise BadStoreUrl(f"{masked} is not a MongoDB URL: {mask_in(str(error), url)}", field="url") from None
    given = {name.lower() for name, _ in parse_qsl(parts.query)}
    return masked, parts.path.strip("/"), {name: wait for name, wait in _WAITS.items() if name.lower() not in given}


@contextmanager
def translated(url: str, *, callers: bool = False) -> Iterator[None]:
    """Driver exceptions become ours; `callers`: the transaction is the caller's, so only it can try again."""
    try:
        yield
    except (errors.PyMongoError, bson.errors.BSONError, OverflowError) as error:
        raise _ours(error, url, callers) from error


def is_duplicate(error: errors.PyMongoError) -> bool:
    """Whether a unique index refused the write."""
    return getattr(error, "code", None) == _DUPLICATE


REFUSALS = frozenset({2, 14, 28, 121, 17280})
"""The server's codes for a write that one document doesn't allow: a value or type that can't be, the validator."""


def is_refusal(error: errors.PyMongoError) -> bool:
    """Whether the error is about one document, and not about the server."""
    return bool(_codes(error) & REFUSALS)


def _ours(error: Exception, url: str, callers: bool) -> OnerowError:
    if isinstance(error, errors.ClientBulkWriteException) and isinstance(error.error, Exception):
        error = error.error  # what broke the batch off
    if callers and (
        (isinstance(error, errors.PyMongoError) and error.has_error_label("TransientTransactionError"))
        or (isinstance(error, errors.PyMongoError) and is_duplicate(error))
    ):
        return RetryTransaction(f"{url}: another write came between; abort the transaction and run it again")
    if isinstance(error, errors.DocumentTooLarge) or _codes(error) & _TOO_LARGE:
        return BadPayload("the task is larger than the 16 MB that MongoDB keeps in one document", field="payload")
    if isinstance(error, bson.errors.BSONError | OverflowError):
        return BadPayload(f"MongoDB can't store this: {error}", field="payload")
    if isinstance(error, errors.ConfigurationError):
        return BadStoreUrl(f"{url}: {error}", field="url")
    if isinstance(error, errors.PyMongoError) and is_refusal(error):
        return RowRefused(f"{url}: {_told(error)}")
    if _codes(error) & _NO_ROOM:
        return StoreFull(f"{url}: the server's disk is full; make room, nothing was lost")
    if _codes(error) & _NOT_ALLOWED:
        return StoreReadOnly(f"{url}: this user may not do that ({_told(error)}); it needs the role readWrite")
    if isinstance(
        error, errors.ConnectionFailure | errors.ExecutionTimeout | errors.WTimeoutError | errors.WaitQueueTimeoutError
    ) or (
        isinstance(error, errors.PyMongoError)
        and (error.timeout or error.has_error_label("RetryableWriteError") or _codes(error) & _CHANGING)
    ):
        return StoreUnavailable(f"{url}: can't be reached ({_told(error)}); it is tried again")
    if isinstance(error, errors.InvalidOperation) and "close" in str(error):
        return StoreUnavailable(f"{url}: was closed meanwhile")
    return StoreError(f"{url}: {_told(error)}")


def _codes(error: Exception) -> set[int]:
    """The server's codes in an error: its own, or those of a batch."""
    found = {getattr(error, "code", None)}
    details = getattr(error, "details", None)
    if isinstance(details, dict):
        for kind in ("writeErrors", "writeConcernErrors"):
            found |= {each.get("code") for each in details.get(kind) or ()}
    return {code for code in found if isinstance(code, int)}


def _told(error: Exception) -> str:
    """What the driver says, without the page of detail that follows it."""
    return re.split(r",? ?\(configured timeouts|, full error|, Timeout:", str(error), maxsplit=1)[0][:300]
