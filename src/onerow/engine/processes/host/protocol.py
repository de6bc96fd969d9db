"""What worker, keeper and wardens say to each other; all of them use this file.

Orders and answers are values and file descriptors on a Unix stream socket, in the form of `marshal`: all
who speak it run the same interpreter and trust each other, and it costs a tenth of JSON. Ends are
reported on one pipe per keeper, in records small enough that the kernel writes each of them whole.
"""

import _socket
import array
import marshal
import os
import struct
from collections.abc import Sequence
from contextlib import suppress

# Like typing.TYPE_CHECKING, without the cost of importing typing into every keeper.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]
else:
    Message = dict

# The kernel passes at most 253 descriptors in one message.
MOST_FDS = 253
_CLOEXEC: int = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
_FDS_ROOM = _socket.CMSG_SPACE(MOST_FDS * array.array("i").itemsize)
_HEAD = struct.Struct("!I")
_REPORT = struct.Struct("!IiBQI")
_UNSEEN = -1


def send(line: _socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one message whole; raises OSError when the other end is gone."""
    body = marshal.dumps(message)
    rest = _HEAD.pack(len(body)) + body
    if fds:
        sent = line.sendmsg([rest], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", fds))])
        rest = rest[sent:]
    line.sendall(rest)


def send_now(line: _socket.socket, message: Message) -> None:
    """Send one small message, or raise BlockingIOError; the kernel takes one of this size whole or not at all."""
    body = marshal.dumps(message)
    line.send(_HEAD.pack(len(body)) + body, _socket.MSG_DONTWAIT)


def receive(line: _socket.socket) -> tuple[Message, list[int]] | None:
    """The next message and its descriptors, now the caller's; None when the other end is gone."""
    try:
        # Descriptors travel with the first byte, so only the head need be read this way.
        head, ancillary, _, _ = line.recvmsg(_HEAD.size, _FDS_ROOM, _CLOEXEC)
        if not head:
            return None
        fds = _descriptors(ancillary) if ancillary else []
        (size,) = _HEAD.unpack(head + _exactly(line, _HEAD.size - len(head)))
        body = _exactly(line, size)
    except (ConnectionError, EOFError):
        return None
    return marshal.loads(body), fds


def report(
    pipe: int, reaper: int, status: int | None, *, stopped: bool = False, max_rss: int = 0, left: int = 0
) -> None:
    """Say that a warden's child and its tree are gone; without a status, so is the warden."""
    # If the worker is gone, we hear of it otherwise.
    with suppress(OSError):
        os.write(pipe, _REPORT.pack(reaper, _UNSEEN if status is None else status, stopped, max_rss, left))


Report = tuple[int, int | None, bool, int, int]
"""The number of the warden, then status, stopped, max_rss and left."""


def reports(pipe: int) -> list[Report] | None:
    """The reports that have come in on a non-blocking pipe; None when all who could write are gone."""
    try:
        records = os.read(pipe, _REPORT.size * 64)
    except BlockingIOError:
        return []
    if not records:
        return None
    return [
        (reaper, None if status == _UNSEEN else status, bool(stopped), max_rss, left)
        for reaper, status, stopped, max_rss, left in _REPORT.iter_unpack(records)
    ]


def _exactly(line: _socket.socket, size: int) -> bytes:
    whole = b""
    while len(whole) < size:
        part = line.recv(size - len(whole))
        if not part:
            raise EOFError
        whole += part
    return whole


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    if not _CLOEXEC:
        for fd in fds:
            os.set_inheritable(fd, False)
    return list(fds)
