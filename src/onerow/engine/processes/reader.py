"""One thread that waits on many descriptors and calls the callback of each that is readable."""

import os
import selectors
import threading
from collections.abc import Callable
from contextlib import suppress


class Reader:
    """Call the callback of each readable descriptor, from one daemon thread."""

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        self._closing = False
        self._selector.register(self._woken, selectors.EVENT_READ, self._close_soon)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, fd: int, ready: Callable[[], None]) -> None:
        """Call `ready` while the descriptor is readable; any thread may add."""
        # epoll and kqueue accept new descriptors while another thread waits in them.
        with suppress(KeyError):  # added before
            self._selector.register(fd, selectors.EVENT_READ, ready)

    def drop(self, fd: int) -> None:
        """Remove a descriptor; call it before the descriptor is closed."""
        with suppress(KeyError, ValueError):  # dropped before
            self._selector.unregister(fd)

    def is_current(self) -> bool:
        """Whether the caller is a callback of this reader."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """End the thread and wait for it; not from a callback."""
        os.write(self._wake, b".")
        self._thread.join()

    def _close_soon(self) -> None:
        self._closing = True

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                # An earlier callback may have dropped this descriptor.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
        self._selector.close()
        os.close(self._woken)
        os.close(self._wake)
