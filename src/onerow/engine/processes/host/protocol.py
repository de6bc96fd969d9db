"""The protocol between worker, host process and reapers; all of them use this file.

Requests and answers are values and file descriptors on a Unix stream socket, encoded with `marshal`: all processes
run the same interpreter and trust each other, and it costs a tenth of JSON. Ends are reported on one pipe per
host process, in records small enough that the kernel writes each of them atomically.
"""

import _socket
import array
import marshal
import os
import struct
from collections.abc import Sequence
from contextlib import suppress

# Like typing.TYPE_CHECKING, without the cost of importing typing into every host process.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]
else:
    Message = dict

# The kernel passes at most 253 descriptors in one message.
MOST_FDS = 253
_CLOEXEC: int = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
_FDS_SPACE = _socket.CMSG_SPACE(MOST_FDS * array.array("i").itemsize)
_HEAD = struct.Struct("!I")
_REPORT = struct.Struct("!IiBQI")
_UNSEEN = -1


def send(line: _socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one message; raise OSError if the other end is closed."""
    body = marshal.dumps(message)
    rest = _HEAD.pack(len(body)) + body
    if fds:
        sent = line.sendmsg([rest], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", fds))])
        rest = rest[sent:]
    line.sendall(rest)


def send_now(line: _socket.socket, message: Message) -> None:
    """Send one small message, or raise BlockingIOError; the kernel accepts this size completely or not at all."""
    body = marshal.dumps(message)
    line.send(_HEAD.pack(len(body)) + body, _socket.MSG_DONTWAIT)


def receive(line: _socket.socket) -> tuple[Message, list[int]] | None:
    """Return the next message and its descriptors, which the caller then owns; None if the other end is closed."""
    try:
        # Descriptors come with the first byte, so only the header is read with recvmsg.
        head, ancillary, _, _ = line.recvmsg(_HEAD.size, _FDS_SPACE, _CLOEXEC)
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
    """Report that a reaper's child and its tree have ended; without a status, the reaper has ended too."""
    # If the worker has ended, the caller learns of it by its socket.
    with suppress(OSError):
        os.write(pipe, _REPORT.pack(reaper, _UNSEEN if status is None else status, stopped, max_rss, left))


Report = tuple[int, int | None, bool, int, int]
"""The number of the reaper, then status, stopped, max_rss and left."""


def reports(pipe: int) -> list[Report] | None:
    """Return the reports in a non-blocking pipe; None when all its writers have ended."""
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
