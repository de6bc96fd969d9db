"""The supervisor: starts worker processes, starts others when they end unbidden, and passes a stop on.

It imports none of the user's code, so that nothing in it can hang or crash the one who must not.
"""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

LIFELINE = "ONEROW_LIFELINE"
"""The worker reads from this descriptor; its end means that the supervisor is gone."""

_STABLE = 10.0
_LONGEST_PAUSE = 30.0


class _Seat:
    """One worker process, and when to start the next in its place."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.pause = 0.5


class Supervisor:
    """Keeps some worker processes running until told to stop."""

    def __init__(self, argv: Sequence[str], processes: int, say: Callable[[str], None], *, once: bool = False) -> None:
        self._argv = list(argv)
        self._seats = [_Seat() for _ in range(processes)]
        self._say = say
        self._once = once  # end when the workers end by themselves
        self._signals = 0
        self._heard = 0
        self._code = 0

    def run(self) -> int:
        """Until told to stop, or until every worker ended well by itself; the exit code."""
        self._lifeline, self._line_end = os.pipe()
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while self._round():
                time.sleep(0.05)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._line_end)
            os.close(self._lifeline)
        return self._code

    def restart(self) -> None:
        """Drain every worker and start it anew."""
        for seat in self._seats:
            if seat.process is not None and seat.process.poll() is None:
                seat.process.send_signal(signal.SIGTERM)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _round(self) -> bool:
        while self._heard < self._signals:
            self._heard += 1
            self._pass_on()
        running = False
        for seat in self._seats:
            if seat.process is not None:
                code = seat.process.poll()
                if code is None:
                    running = True
                    continue
                self._ended(seat, code)
            if self._signals == 0 and not (self._once and seat.start_at == float("inf")):
                running = True
                if time.monotonic() >= seat.start_at:
                    self._start(seat)
        return running

    def _start(self, seat: _Seat) -> None:
        environment = os.environ | {LIFELINE: str(self._lifeline)}
        # A group of its own: the terminal's Ctrl-C reaches us, and we pass it on once.
        seat.process = subprocess.Popen(
            self._argv, env=environment, pass_fds=[self._lifeline], start_new_session=True, stdin=subprocess.DEVNULL
        )
        seat.started_at = time.monotonic()

    def _ended(self, seat: _Seat, code: int) -> None:
        assert seat.process is not None
        pid, seat.process = seat.process.pid, None
        if self._signals:
            self._code = self._code or (code if code > 0 else 0)
            return
        if self._once and code == 0:
            seat.start_at = float("inf")
            return
        if code in (64, 66):  # the app is wrong, or its database file is gone: trying again would not help
            self._code = code
            self._signals += 1
            return
        lived = time.monotonic() - seat.started_at
        seat.pause = 0.5 if lived > _STABLE else min(seat.pause * 2, _LONGEST_PAUSE)
        # A worker that gave way because of hung work did right: its successor starts at once.
        wait = 0.0 if code in (0, 75) or lived > _STABLE else seat.pause
        seat.start_at = time.monotonic() + wait
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        self._say(f"worker process {pid} {how}; another starts" + (f" in {wait:.0f} s" if wait >= 1 else ""))

    def _pass_on(self) -> None:
        # Two of the same signal in quick succession arrive as one; of two different ones both arrive.
        number = signal.SIGTERM if self._heard % 2 else signal.SIGINT
        for seat in self._seats:
            if seat.process is not None and seat.process.poll() is None:
                seat.process.send_signal(number)


def watch_lifeline(gone: Callable[[], None]) -> None:
    """Call `gone` when the supervisor that started us is no more; blocks, so give it a thread."""
    descriptor = os.environ.get(LIFELINE)
    if descriptor is None:
        return
    try:
        while os.read(int(descriptor), 1):
            pass
    except OSError:
        pass
    gone()


def is_supervised() -> bool:
    return LIFELINE in os.environ and sys.platform != "win32"


def ease_collector() -> None:
    """For a process that is a worker and nothing else: the thousands of rows of a turn don't start a collection each."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
