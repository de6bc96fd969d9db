"""One worker process as its supervisor sees it: its start, its orders and its signs of life."""

import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from onerow.engine.worker.counters import Counters

LIFELINE = "ONEROW_LIFELINE"
"""The worker reads orders from this descriptor; end of file means that the supervisor has ended."""

LIVENESS = "ONEROW_LIVENESS"
"""The worker writes its signs of life to this descriptor."""

FIRST_PAUSE = 0.5

# Seconds until the next try, after a replacement that ended before it was ready; doubled each time.
FIRST_REPLACE_PAUSE = 30.0

# Seconds until a worker says how long it may be silent: it starts an interpreter and imports the user's code.
_SILENT_AT_START = 120.0


class Need(NamedTuple):
    """The work that a worker read from the store, for the decision about the number of processes."""

    to_start: int  # slots
    running: int  # slots
    upkeep: int


class WorkerProcess:
    """One worker process, and when to start its replacement. Times are in the supervisor's own clock."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.pause = FIRST_PAUSE
        self.ready = False  # whether the process has sent the sign of a worker that serves
        self.failed_starts = 0
        self.orders = -1
        self.signs = -1
        self.last_sign_at = 0.0
        self.silent_at_most = _SILENT_AT_START
        self.running = 0
        self.settled = 0  # attempts since its start
        self.memory = 0  # bytes
        self.draining = False  # the process claims no more, for example because an operator asked for it
        self.idle = False  # nothing is due, and it waits until all others are idle too
        self.may_leave = False  # it got LEAVE: all are idle
        self.overdue = 0.0  # seconds for which it should have claimed, and did not
        self.counters = Counters()  # of the process that runs
        self.need: Need | None = None  # as this worker last read it from the store
        self.kill_at = float("inf")
        self.killed = ""
        self.replacement: WorkerProcess | None = None  # it is starting
        self.replaces: WorkerProcess | None = None  # it works until this process is ready
        self.retiring = False  # claims no more, because its replacement is ready or fewer processes are needed
        self.surplus = False  # retiring, and without a replacement
        self.replace_at = 0.0
        self.replace_pause = FIRST_REPLACE_PAUSE

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
                # Its own process group: the terminal's Ctrl-C reaches only the supervisor, which forwards it once.
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )
        except BaseException:
            self.close()
            raise
        finally:
            os.close(orders)
            os.close(signs)
        self.silent_at_most, self.running, self.settled, self.memory = _SILENT_AT_START, 0, 0, 0
        self.ready, self.draining, self.overdue, self.need = False, False, 0.0, None
        self.idle = self.may_leave = False
        self.counters = Counters()
        self.kill_at, self.killed = float("inf"), ""

    @property
    def counts(self) -> bool:
        """Whether it is one of the processes that are wanted: not a replacement that starts, and not on its way out."""
        return not self.retiring and self.replaces is None

    @property
    def may_retire(self) -> bool:
        """Whether a scale-in may choose it: it serves and runs nothing."""
        return self.counts and self.ready and self.running == 0 and self.replacement is None

    def order(self, order: bytes) -> None:
        try:
            os.write(self.orders, order)
        except OSError:
            pass  # it has ended

    def has_sign(self) -> bool:
        """Whether the worker sent a sign of life since the last call."""
        try:
            received = os.read(self.signs, 65536)
        except OSError:
            return False
        for line in received.splitlines()[-1:]:
            try:
                silent_at_most, running, settled, memory, *more = line.split(b" ")
                self.running, self.settled, self.memory = int(running), int(settled), int(memory)
                if more and more[-1].startswith(b"c="):
                    self.counters = Counters.parse(more.pop()[2:].decode())
                self.overdue = float(more[0]) if more else 0.0
                self.draining, self.idle = more[1:2] == [b"draining"], more[1:2] == [b"idle"]
                self.need = Need(*map(int, more[2:5])) if len(more) > 4 else self.need
                self.silent_at_most = float(silent_at_most)
                self.ready = True
            except ValueError:
                pass  # an incomplete line; the next one comes soon
        return bool(received)

    def kill(self, why: str) -> None:
        assert self.process is not None
        self.killed = why
        self.process.kill()

    def close(self) -> None:
        os.close(self.orders)
        os.close(self.signs)
