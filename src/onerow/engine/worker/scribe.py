"""The scribe keeps output lines in the store, in batches, so that a talkative task slows nothing else down."""

from datetime import datetime
from time import monotonic

from onerow.core.errors import StoreError
from onerow.engine.logfiles import LogFiles
from onerow.engine.worker.hands import Hands
from onerow.engine.worker.output import Output
from onerow.ports import LogLine, Store

_BATCH = 2_000
_SHARE = 500  # lines of one task in a batch, while others wait
_GATHER = 0.05  # seconds between two writes
_GATHER_AWAITED = 0.003  # the same, while an outcome waits for its lines


class Scribe:
    """Writes what attempts said; each in its turn, so that nobody waits behind a flood."""

    def __init__(self, store: Store, hands: Hands, files: LogFiles | None = None) -> None:
        self._store = store
        self._hands = hands
        self._files = files
        self._wrote_at = 0.0
        self._kept: list[tuple[Output, list[LogLine]]] = []

    def tick(self, now: datetime) -> float:
        """One round; seconds to rest."""
        speaking = self._hands.speaking
        if (early := self._too_early()) > 0 and not self._kept:
            return early
        self._hands.awaited = False
        room = _BATCH - sum(len(lines) for _, lines in self._kept)
        while speaking and room > 0:
            output = speaking.popleft()
            output.queued = False
            lines = output.take(min(room, _SHARE) if speaking else room)
            room -= len(lines)
            self._kept.append((output, lines))
            if len(output):
                self._hands.let_speak(output)
        if not self._kept:
            return 1.0
        self._write()
        kept, self._kept = self._kept, []
        for output, _ in kept:
            if output.when_kept is not None and not len(output):
                self._hands.kept(output)
        self._wrote_at = monotonic()
        return self._too_early() if speaking else 1.0

    def _too_early(self) -> float:
        """Seconds to wait for more, so that a talker costs some transactions a second and not one a line."""
        if sum(map(len, list(self._hands.speaking))) >= _BATCH:
            return 0.0
        return self._wrote_at + (_GATHER_AWAITED if self._hands.awaited else _GATHER) - monotonic()

    def _write(self) -> None:
        try:
            if lines := [line for _, lines in self._kept for line in lines]:
                self._store.append_log(lines)
        except StoreError:
            raise  # again later; the lines stay with us
        except Exception:
            # A line that the store can't take must not hold up its task, nor the lines of all others.
            self._forget_lines()
            raise
        written = self._forget_lines()
        if self._files is not None:
            for output, lines in written:
                self._files.write(output, lines)

    def _forget_lines(self) -> list[tuple[Output, list[LogLine]]]:
        kept, self._kept = self._kept, [(output, []) for output, _ in self._kept]
        return kept
