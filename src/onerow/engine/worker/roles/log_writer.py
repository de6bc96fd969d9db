"""Write output lines to the store in batches, so that a task with much output does not slow down the others."""

from datetime import datetime
from time import monotonic

from onerow.core.errors import StoreError
from onerow.engine.output.buffer import Output
from onerow.engine.output.files import LogFiles
from onerow.engine.runners.attempt import InFlight
from onerow.ports import LogLine, Store

_LEAST, _BATCH = 200, 2_000
_WRITES_FOR = 0.004  # seconds that a write may take, because other calls wait for the store
_SHARE = 500  # lines of one task in a batch
_GATHER = 0.05  # seconds between two writes, unless an outcome waits for its lines
# Pause after a write, relative to its duration, so that other store calls get through; longer if all lines were one
# task's.
_PAUSE, _PAUSE_AFTER_ONE_TASK = 0.25, 1.0


class LogWriter:
    """Write the output of attempts, round robin, so that one with much output does not delay the others."""

    def __init__(self, store: Store, in_flight: InFlight, files: LogFiles | None = None) -> None:
        self._store = store
        self._in_flight = in_flight
        self._files = files
        self._rest_until = 0.0
        self._batch = _BATCH // 2  # lines per write, adapted to the speed of the store
        self._kept: list[tuple[Output, list[LogLine]]] = []

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        if not self._kept:
            if not self._in_flight.speaking:
                return 1.0
            if (early := self._rest_until - monotonic()) > 0 and not self._in_flight.awaited:
                return early
            self._in_flight.awaited = False
            self._take()
        counted = self._kept
        began = monotonic()
        self._write()
        took = monotonic() - began
        kept, self._kept = self._kept, []
        written = sum([len(lines) for _, lines in counted])
        full = written >= self._batch
        if full or took > _WRITES_FOR:
            self._batch = min(_BATCH, max(_LEAST, int(written * _WRITES_FOR / max(took, 1e-6))))
        for output, _ in kept:
            if len(output):
                self._in_flight.awaited = self._in_flight.awaited or output.when_kept is not None
                self._in_flight.queue_output(output)
            elif output.when_kept is not None:
                self._in_flight.kept(output)
        busy = self._in_flight.awaited or full or any(len(lines) >= _SHARE for _, lines in counted)
        rest = took * (_PAUSE if len(counted) > 1 else _PAUSE_AFTER_ONE_TASK) if busy else _GATHER
        self._rest_until = monotonic() + rest
        return rest if self._in_flight.speaking else 1.0

    def _take(self) -> None:
        speaking = self._in_flight.speaking
        left = self._batch
        for _ in range(len(speaking)):
            output = speaking.popleft()
            output.queued = False
            lines = output.take(min(left, _SHARE))
            left -= len(lines)
            self._kept.append((output, lines))
            if left <= 0:
                return

    def _write(self) -> None:
        try:
            if lines := [line for _, lines in self._kept for line in lines]:
                self._store.append_log(lines)
        except StoreError:
            raise  # the lines are kept for a retry
        except Exception:
            # A line that the store refuses must not block its task or the lines of other tasks.
            self._forget_lines()
            raise
        written = self._forget_lines()
        if self._files is not None:
            for output, lines in written:
                self._files.write(output, lines)

    def _forget_lines(self) -> list[tuple[Output, list[LogLine]]]:
        kept, self._kept = self._kept, [(output, []) for output, _ in self._kept]
        return kept
