"""SIGTERM and SIGINT of a command that ends in order: what they ask for is done in a thread."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


def on_stop_signal(act: Callable[[], None]) -> Callable[[], None]:
    """Call `act` for each SIGTERM and SIGINT; return a function that restores the handlers before.

    Not in the handler, which interrupts the main thread anywhere, also while that holds the lock of an Event: to set the
    Event there would wait for this lock for ever.
    """
    process, (heard, tell) = os.getpid(), os.pipe()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if os.getpid() == process:  # not in a fork
            os.write(tell, b"!")

    def listen() -> None:
        while os.read(heard, 1):
            act()
        os.close(heard)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    threading.Thread(target=listen, name="onerow-signals", daemon=True).start()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(tell)

    return restore
