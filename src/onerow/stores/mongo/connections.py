"""The client of one MongoDB database, and the translation of driver exceptions to onerow errors."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import bson.errors
from bson.codec_options import CodecOptions, DatetimeConversion
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
"""For a standalone server: an acknowledged write is in its journal. Not w='majority': a standalone server acknowledged
that without journaling, and lost acknowledged writes when it was killed."""
JOURNALED_BY_MOST = WriteConcern(w="majority", j=True, wtimeout=20_000)
"""For a replica set: an acknowledged write is in the journals of a majority of the members."""

# A value that another program wrote must not stop the query that meets it: a date beyond Python's years is returned as
# DatetimeMS, and bytes that are not UTF-8 as escapes.
CODEC: CodecOptions[Document] = CodecOptions(
    tz_aware=False,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="backslashreplace",
)
_TIMEOUTS = {"serverSelectionTimeoutMS": 5_000, "connectTimeoutMS": 5_000, "socketTimeoutMS": 30_000}
_IN_FLIGHT = 8
_BULK_WRITE = 25  # wire version of MongoDB 8.0, the first to answer a bulk write per operation

Session = ClientSession | None

DUPLICATE = 11000
_TOO_LARGE = frozenset({10334, 17419, 17420, 16633})
_DISK_FULL = frozenset({14031, 12500})
_NOT_ALLOWED = frozenset({13, 18, 8000})
# The member is not primary, is shutting down, or has no majority read yet. pymongo handles most of these codes, but not
# in the answer to a single write of a batch.
_CHANGING = frozenset({6, 7, 89, 91, 133, 134, 189, 246, 262, 9001, 10107, 11600, 11602, 13435, 13436})


class Collections:
    """The collections of one store, with the read and write concerns that its guarantees need."""

    def __init__(self, client: MongoClient[Document], database: str, collection: str, bulk: bool | None) -> None:
        hello = client.admin.command("hello")
        self.client = client
        self.has_members = "setName" in hello or hello.get("msg") == "isdbgrid"
        """Whether this is a replica set or a sharded cluster: majority writes, change streams and transactions."""
        self.answers_each = hello.get("maxWireVersion", 0) >= _BULK_WRITE if bulk is None else bulk
        """Whether a bulk write returns an answer per operation."""
        self.concern = JOURNALED_BY_MOST if self.has_members else JOURNALED
        found = client.get_database(
            database,
            codec_options=CODEC,
            read_preference=ReadPreference.PRIMARY,
            write_concern=self.concern,
            read_concern=ReadConcern("majority"),
        )
        # A second queue in the same database has its own collections for notes and output.
        prefix = "onerow" if collection == "task_queue" else collection
        self.database = found
        self.tasks: Collection[Document] = found[collection]
        self.notes: Collection[Document] = found[f"{prefix}_note"]
        self.log: Collection[Document] = found[f"{prefix}_log"]
        self.meta: Collection[Document] = found[f"{prefix}_meta"]

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Open a snapshot session, in which all queries read the same state; yield None on a standalone server."""
        if not self.has_members:
            yield None
            return
        with self.client.start_session(snapshot=True) as session:
            yield session


class Connections:
    """The client, opened on first use and again after a fork."""

    def __init__(
        self, url: str, database: str | None, collection: str, check: Callable[[Collections], None], bulk: bool | None
    ) -> None:
        self.url, named, self._options = _read_url(url)
        self.database = database or named
        if not self.database:
            raise BadStoreUrl(f"{self.url} names no database", fix="write it like mongodb://host/database", field="url")
        self.collection = collection
        self._given = url
        self._check = check
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._client: MongoClient[Document] | None = None
        self._callers: MongoClient[Document] | None = None
        self._collections: Collections | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._checked = False
        self._bulk = bulk
        self._listeners: list[CommandListener] = []

    def use(self, client: MongoClient[Document]) -> None:
        """Use the caller's client instead of opening one."""
        self._callers = client

    @contextmanager
    def open(self, *, checked: bool = True) -> Iterator[Collections]:
        """Lend the collections, after a schema check on first use; translate driver exceptions."""
        try:
            with translated(self.url):
                collections = self.collections()
                if checked and not self._checked:
                    self._check(collections)
                    self._checked = True
                yield collections
        except StoreUnavailable:
            self._collections = None  # the next server may differ: detect its features again
            raise

    def collections(self) -> Collections:
        """Return the collections; open the client on first use."""
        collections = self._collections
        if collections is not None and self._pid == os.getpid():
            return collections
        with self._lock:
            self._after_fork()
            if self._client is None:
                self._client = self._callers or MongoClient(
                    self._given, appname="onerow", event_listeners=self._listeners, **self._options
                )
            client = self._client
        self._collections = collections = Collections(client, self.database, self.collection, self._bulk)
        return collections

    def in_flight(self) -> ThreadPoolExecutor:
        """Return the thread pool for concurrent single operations."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_IN_FLIGHT, thread_name_prefix="onerow-mongo")
            return self._pool

    def count_commands(self) -> Callable[[], int]:
        """Count the commands sent from now on; return a function that reads the count."""
        self.close()
        counter = _Counter()
        self._listeners.append(counter)
        return lambda: counter.seen

    def close(self) -> None:
        with self._lock:
            self._after_fork()
            client, self._client, self._collections = self._client, None, None
            pool, self._pool = self._pool, None
            self._checked = False
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)  # an unavailable server must not block close()
        if client is not None and client is not self._callers:
            client.close()

    def _after_fork(self) -> None:
        # A client's sockets and threads don't survive a fork.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._client = self._collections = self._pool = None


class _Counter(CommandListener):
    """Counts commands, except those that manage connections."""

    def __init__(self) -> None:
        self.seen = 0

    def started(self, event: CommandStartedEvent) -> None:
        self.seen += 1

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


def _read_url(url: str) -> tuple[str, str, dict[str, Any]]:
    """Return (the URL with its password masked, its database, default timeouts that it does not set)."""
    masked = mask_password(url)
    if not url.startswith(("mongodb://", "mongodb+srv://")):
        raise BadStoreUrl(f"{masked} is no MongoDB URL", fix="write it like mongodb://host/database", field="url")
    try:
        if url.startswith("mongodb://"):  # parsing mongodb+srv:// would query DNS
            parse_uri(url)
        parts = urlsplit(url)
    except (errors.PyMongoError, ValueError) as error:
        raise BadStoreUrl(f"{masked} is not a MongoDB URL: {mask_in(str(error), url)}", field="url") from None
    given = {name.lower() for name, _ in parse_qsl(parts.query)}
    defaults = {name: value for name, value in _TIMEOUTS.items() if name.lower() not in given}
    return masked, parts.path.strip("/"), defaults


@contextmanager
def translated(url: str, *, callers: bool = False) -> Iterator[None]:
    """Translate driver exceptions; with `callers`, a write conflict becomes RetryTransaction."""
    try:
        yield
    except (errors.PyMongoError, bson.errors.BSONError, OverflowError) as error:
        raise _translate(error, url, callers) from error


def is_duplicate(error: errors.PyMongoError) -> bool:
    """Whether a unique index refused the write."""
    return getattr(error, "code", None) == DUPLICATE


REFUSALS = frozenset({2, 14, 28, 121, 17280})
"""Server codes for a write that one document causes to fail: a wrong type or value, or the validator."""


def is_refusal(error: errors.PyMongoError) -> bool:
    """Whether the error concerns one document, not the server."""
    return bool(_codes(error) & REFUSALS)


def _translate(error: Exception, url: str, callers: bool) -> OnerowError:
    if isinstance(error, errors.ClientBulkWriteException) and isinstance(error.error, Exception):
        error = error.error  # the error that stopped the batch
    if callers and (
        (isinstance(error, errors.PyMongoError) and error.has_error_label("TransientTransactionError"))
        or (isinstance(error, errors.PyMongoError) and is_duplicate(error))
    ):
        return RetryTransaction(f"{url}: another write came between", fix="abort the transaction and run it again")
    if isinstance(error, errors.DocumentTooLarge) or _codes(error) & _TOO_LARGE:
        return BadPayload("the task is larger than the 16 MB that MongoDB keeps in one document", field="payload")
    if isinstance(error, bson.errors.BSONError | OverflowError):
        return BadPayload(f"MongoDB can't store this: {error}", field="payload")
    if isinstance(error, errors.ConfigurationError):
        return BadStoreUrl(f"{url}: {error}", field="url")
    if isinstance(error, errors.PyMongoError) and is_refusal(error):
        return RowRefused(f"{url}: {_message(error)}")
    if _codes(error) & _DISK_FULL:
        return StoreFull(f"{url}: the server's disk is full")
    if _codes(error) & _NOT_ALLOWED:
        return StoreReadOnly(f"{url}: this user may not do that ({_message(error)})", fix="give it the role readWrite")
    if isinstance(
        error, errors.ConnectionFailure | errors.ExecutionTimeout | errors.WTimeoutError | errors.WaitQueueTimeoutError
    ) or (
        isinstance(error, errors.PyMongoError)
        and (error.timeout or error.has_error_label("RetryableWriteError") or _codes(error) & _CHANGING)
    ):
        return StoreUnavailable(f"{url}: can't be reached ({_message(error)})")
    if isinstance(error, errors.InvalidOperation) and "close" in str(error):
        return StoreUnavailable(f"{url}: the connection was closed")
    return StoreError(f"{url}: {_message(error)}")


def _codes(error: Exception) -> set[int]:
    """Return the server codes in an error: its own and those of a batch."""
    found = {getattr(error, "code", None)}
    details = getattr(error, "details", None)
    if isinstance(details, dict):
        for kind in ("writeErrors", "writeConcernErrors"):
            found |= {each.get("code") for each in details.get(kind) or ()}
    return {code for code in found if isinstance(code, int)}


def _message(error: Exception) -> str:
    """Return the driver's message without the details that follow it."""
    return re.split(r",? ?\(configured timeouts|, full error|, Timeout:", str(error), maxsplit=1)[0][:300]
