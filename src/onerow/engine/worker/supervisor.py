"""The supervisor: starts worker processes, replaces those that end or freeze, and passes a stop on.

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
"""The worker reads orders from this descriptor; its end means that the supervisor is gone."""

LIVENESS = "ONEROW_LIVENESS"
"""The worker writes to this descriptor that it is alive."""

DRAIN, HURRY = b"d", b"h"
WRONG_APP, STORE_MOVED, TOO_OLD = 64, 66, 78
LEFT_BEHIND = 70

_ROUND = 0.05
_STABLE = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0

# Until a worker says how long it may be silent: an interpreter starts on a loaded machine and imports the user's code.
_SILENT_AT_START = 120.0

# A worker ends within its grace and these seconds, whatever the store does; then it is killed.
_ENDS_AFTER_GRACE = 5.0


class _Seat:
    """One worker process, and when to start the next in its place. Times are those of the supervisor's own clock."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.pause = _FIRST_PAUSE
        self.orders = -1
        self.signs = -1
        self.heard_at = 0.0
        self.silent_at_most = _SILENT_AT_START
        self.running = 0
        self.kill_at = float("inf")
        self.killed = ""

    def start(self, argv: Sequence[str]) -> None:
        """Start a worker process; raises OSError."""
        orders, self.orders = os.pipe()
        self.signs, signs = os.pipe()
        os.set_blocking(self.signs, False)
        try:
            self.process = subprocess.Popen(
                argv,
                env=os.environ | {LIFELINE: str(orders), LIVENESS: str(signs)},
                pass_fds=[orders, signs],
                # A group of its own: the terminal's Ctrl-C reaches us, and we pass it on once.
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )
        except BaseException:
            self.close()
            raise
        finally:
            os.close(orders)
            os.close(signs)
        self.silent_at_most, self.running = _SILENT_AT_START, 0
        self.kill_at, self.killed = float("inf"), ""

    def order(self, order: bytes) -> None:
        try:
            os.write(self.orders, order)
        except OSError:
            pass  # it has ended

    def hears(self) -> bool:
        """Whether the worker gave a sign of life since the last look."""
        try:
            heard = os.read(self.signs, 65536)
        except OSError:
            return False
        for line in heard.splitlines()[-1:]:
            silent_at_most, _, running = line.partition(b" ")
            try:
                self.silent_at_most, self.running = float(silent_at_most), int(running)
            except ValueError:
                pass  # half a line; the next one comes soon
        return bool(heard)

    def kill(self, why: str) -> None:
        assert self.process is not None
        self.killed = why
        self.process.kill()

    def close(self) -> None:
        os.close(self.orders)
        os.close(self.signs)


class Supervisor:
    """Keeps some worker processes running until it is asked to stop."""

    def __init__(
        self,
        argv: Sequence[str],
        processes: int,
        say: Callable[[str], None],
        *,
        grace: float = 30.0,
        once: bool = False,
    ) -> None:
        self._argv = list(argv)
        self._seats = [_Seat() for _ in range(processes)]
        self._say = say
        self._grace = grace
        self._once = once  # end when the workers end by themselves
        self._signals: list[int] = []
        self._stops = 0  # 1: drain, 2: end now, 3: kill
        self._code = 0
        self._looked_at = time.monotonic()
        self._now = 0.0

    def run(self) -> int:
        """Until asked to stop, or until every worker ended well by itself; the exit code."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        self._looked_at = time.monotonic()
        try:
            while self._round():
                time.sleep(_ROUND)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._code

    def restart(self) -> None:
        """Drain every worker and start it anew."""
        for seat in self._seats:
            if seat.process is not None:
                self._drain(seat)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _round(self) -> bool:
        self._tick()
        while self._signals:
            self._stop(self._signals.pop(0))
        running = False
        for seat in self._seats:
            if seat.process is not None:
                code = seat.process.poll()
                if code is None:
                    running = True
                    self._watch(seat)
                    continue
                self._ended(seat, code)
            if self._stops == 0 and not (self._once and seat.start_at == float("inf")):
                running = True
                if self._now >= seat.start_at:
                    self._start(seat)
        return running

    def _tick(self) -> None:
        """Advance our clock, which leaves out times in which we did not run.

        After a suspend, or when everything was stopped by a signal, no worker could give a sign of life either.
        """
        now = time.monotonic()
        self._now += min(now - self._looked_at, 1.0)
        self._looked_at = now

    def _watch(self, seat: _Seat) -> None:
        if seat.hears():
            seat.heard_at = self._now
        silent_for = self._now - seat.heard_at
        if seat.killed:
            return
        if self._now >= seat.kill_at:
            seat.kill("did not end in time and was killed")
        elif silent_for > seat.silent_at_most:
            seat.kill(
                f"gave no sign of life for {silent_for:.0f} s (a call that holds the GIL, or a stopped process) "
                "and was killed"
            )

    def _start(self, seat: _Seat) -> None:
        try:
            seat.start(self._argv)
        except OSError as error:
            # Too many processes, no memory: the other workers go on, and this one starts when there is room.
            seat.start_at = self._now + seat.pause
            self._say(f"cannot start a worker process ({error}); retrying in {seat.pause:g} s")
            seat.pause = min(seat.pause * 2, _LONGEST_PAUSE)
            return
        seat.started_at = seat.heard_at = self._now

    def _ended(self, seat: _Seat, code: int) -> None:
        assert seat.process is not None
        pid, seat.process = seat.process.pid, None
        seat.close()
        if self._stops:
            if seat.killed:
                self._say(f"worker process {pid} {seat.killed}; its tasks run again elsewhere")
            self._code = self._code or (LEFT_BEHIND if seat.killed else max(code, 0))
            return
        if self._once and code == 0:
            seat.start_at = float("inf")
            return
        if code in (WRONG_APP, STORE_MOVED, TOO_OLD):  # starting another would not help
            self._code = code
            self._stop(None)
            return
        lived = self._now - seat.started_at
        seat.pause = _FIRST_PAUSE if lived > _STABLE else min(seat.pause * 2, _LONGEST_PAUSE)
        # A worker that gave way because of hung work did right: its successor starts at once.
        wait = 0.0 if code in (0, 75) or lived > _STABLE else seat.pause
        seat.start_at = self._now + wait
        how = seat.killed or (f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}")
        self._say(f"worker process {pid} {how}; another starts" + (f" in {wait:.0f} s" if wait >= 1 else ""))

    def _stop(self, number: int | None) -> None:
        """Drain at the first signal, end at the second, kill at the third; without a signal: drain."""
        self._stops += 1
        seats = [seat for seat in self._seats if seat.process is not None]
        running = _tasks(sum(seat.running for seat in seats))
        if self._stops == 1:
            for seat in seats:
                self._drain(seat)
            if number is not None:
                again = "press Ctrl-C again" if number == signal.SIGINT else "send SIGTERM again"
                self._say(f"stopping: waiting up to {self._grace:g} s for {running}; {again} to stop now")
        elif self._stops == 2:
            for seat in seats:
                seat.order(HURRY)
                seat.kill_at = min(seat.kill_at, self._now + _ENDS_AFTER_GRACE)
            self._say(f"stopping now: handing back {running}")
        else:
            for seat in seats:
                seat.kill("was killed")

    def _drain(self, seat: _Seat) -> None:
        seat.order(DRAIN)
        seat.kill_at = min(seat.kill_at, self._now + self._grace + _ENDS_AFTER_GRACE)


def _tasks(count: int) -> str:
    return f"{count or 'no'} running task{'' if count == 1 else 's'}"


def is_supervised() -> bool:
    return LIFELINE in os.environ and sys.platform != "win32"


def ease_collector() -> None:
    """For a process that is a worker and nothing else: the thousands of rows of a turn don't start a collection each."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
