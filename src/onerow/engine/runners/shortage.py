"""Whether the process lacks what all its attempts share: file descriptors, threads, memory."""

import os
from collections.abc import Iterator
from contextlib import suppress
from errno import EAGAIN, EMFILE, ENFILE, ENOMEM
from typing import NamedTuple

from onerow.core.failure import leaves, text_of
from onerow.engine.processes import CannotStart

_ERRNOS = frozenset({EMFILE, ENFILE, ENOMEM})
_NO_THREAD = "can't start new thread"
_MOST_CAUSES = 100
_RESERVED = 16  # descriptors
_ENOUGH_MEMORY = 1 << 20  # bytes


class Shortage(NamedTuple):
    """What the process lacks; `lasts`: so that no attempt can run in it any more."""

    why: str
    lasts: bool


def shortage(error: BaseException | None = None) -> Shortage | None:
    """Return what this process lacks, by an exception that was raised in it and by a look; never raises."""
    try:
        for each in _causes(error):
            if isinstance(each, MemoryError):
                return Shortage(_described(each), lasts=not _has_memory())  # perhaps one large allocation
            if isinstance(each, CannotStart) and each.errno == EAGAIN:
                return Shortage(_described(each), lasts=False)  # the limit of processes, which the whole user shares
            if _lacks(each):
                return Shortage(_described(each), lasts=True)
    except BaseException:
        pass  # raised by a method of the exception
    # Many libraries raise their own exception for it: a name that cannot be resolved, a module that is not found.
    # One that is open for a moment only may have been the last, so some must be left.
    found = Reserve()
    found.close()
    return found.lack


class Reserve:
    """File descriptors that are kept for the end of a process that ran out of them: it still writes what it holds.

    lack: why there are fewer than wanted; a worker can start without them.
    """

    def __init__(self) -> None:
        self._held: list[int] = []
        self.lack: Shortage | None = None
        try:
            while len(self._held) < _RESERVED:
                self._held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if error.errno in _ERRNOS:
                self.lack = Shortage(_described(error), lasts=True)

    def close(self) -> None:
        """Close them, so that others can be opened."""
        with suppress(IndexError):  # two threads may close them at once
            while True:
                os.close(self._held.pop())

    __del__ = close


def _lacks(error: BaseException) -> bool:
    if isinstance(error, RuntimeError):
        return str(error) == _NO_THREAD
    return isinstance(error, OSError | CannotStart) and error.errno in _ERRNOS


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception, those of a group, and what they were raised from."""
    found = [] if error is None else [error]
    for _ in range(_MOST_CAUSES):
        if not found:
            return
        for each in leaves(found.pop()):
            yield each
            cause = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
            if cause is not None:
                found.append(cause)


def _has_memory() -> bool:
    try:
        bytearray(_ENOUGH_MEMORY)
    except MemoryError:
        return False
    return True


def _described(error: BaseException) -> str:
    text = text_of(error)
    name = type(error).__name__
    return f"{name}: {text}" if text else name
