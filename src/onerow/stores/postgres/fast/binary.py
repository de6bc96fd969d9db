"""Encodes values for PostgreSQL's binary protocol: times as microseconds since 2000, columns as arrays.

An array is built with one struct.pack, because the driver would make one call per value. One array per column makes a
batch of five hundred rows one statement.
"""

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar

from psycopg import pq
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.types.numeric import Int8BinaryLoader
from psycopg.types.string import TextBinaryLoader

from onerow.core.times import FAR

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_UNIX_EPOCH = EPOCH.timestamp()
_MICRO = timedelta(microseconds=1)
_INFINITY = 2**63 - 1
_NULL = b"\xff\xff\xff\xff"
_length = struct.Struct(">i").pack


def unix_time(micros: int) -> float:
    """Convert a time from a row to seconds since 1970."""
    return micros / 1e6 + _UNIX_EPOCH


@lru_cache(maxsize=8192)
def moment(micros: int) -> datetime:
    """Return a time from a row; cached, because the rows of a batch share times."""
    if micros == _INFINITY:
        return FAR
    return EPOCH + timedelta(microseconds=micros)


@lru_cache(maxsize=8192)
def micros(moment: datetime) -> int:
    return (moment - EPOCH) // _MICRO


class Column(bytes):
    """The encoded values of one column."""

    oid: ClassVar[int]  # of the array type
    element: ClassVar[int]  # the oid of one value
    number: ClassVar[str | None] = None  # the struct format of one value, if all have the same size


class Texts(Column):
    oid, element = 1009, 25


class Jsons(Column):
    oid, element = 199, 114


class Shorts(Column):
    oid, element, number = 1005, 21, "h"


class Integers(Column):
    oid, element, number = 1007, 23, "i"


class Bigs(Column):
    oid, element, number = 1016, 20, "q"


class Flags(Column):
    oid, element, number = 1000, 16, "?"


class Moments(Column):
    oid, element, number = 1185, 1184, "q"


class Ctids(Column):
    """The physical locations of rows, as the server sent them."""

    oid, element = 1010, 27


ENCODE: dict[type[Column], Callable[[Any], bytes]] = {
    Texts: str.encode,
    Jsons: str.encode,
    Shorts: struct.Struct(">h").pack,
    Integers: struct.Struct(">i").pack,
    Bigs: struct.Struct(">q").pack,
    Flags: struct.Struct(">?").pack,
    Moments: lambda moment: struct.pack(">q", micros(moment)),
    Ctids: bytes,
}
"""Encoder for one value of each kind of column; None is sent as NULL."""


def cells(kind: type[Column], values: Sequence[Any]) -> list[bytes]:
    """Return the values of a column, each with a length prefix, as arrays and COPY rows need them."""
    encode = ENCODE[kind]
    return [_NULL if value is None else _length(len(raw := encode(value))) + raw for value in values]


def column(kind: type[Column], values: Sequence[Any]) -> Column:
    """Encode a column as one array parameter."""
    if not values:
        return kind(struct.pack(">iii", 0, 0, kind.element))
    has_nulls = None in values
    head = struct.pack(">iiiii", 1, has_nulls, kind.element, len(values), 1)
    if has_nulls or kind.number is None:
        return kind(head + b"".join(cells(kind, values)))
    if kind is Moments:
        values = [micros(value) for value in values]
    flat: list[Any] = [struct.calcsize(f">{kind.number}")] * (2 * len(values))  # a length before each value
    flat[1::2] = values
    return kind(head + struct.pack(">" + f"i{kind.number}" * len(values), *flat))


def _dumper(kind: type[Column]) -> type[Dumper]:
    class ColumnDumper(Dumper):
        format = pq.Format.BINARY
        oid = kind.oid

        def dump(self, obj: Any) -> bytes:
            return obj  # type: ignore[no-any-return]

    return ColumnDumper


_DUMPERS = {kind: _dumper(kind) for kind in ENCODE}


def register_adapters(adapters: AdaptersMap) -> None:
    """Register adapters: JSON is read as text, times as integers, and encoded columns are sent unchanged."""
    adapters.register_loader("json", TextBinaryLoader)
    adapters.register_loader("timestamptz", Int8BinaryLoader)
    for kind, dumper in _DUMPERS.items():
        adapters.register_dumper(kind, dumper)
