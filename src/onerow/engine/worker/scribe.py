"""The scribe keeps output lines in the store, in batches, so that a talkative task slows nothing else down."""

from datetime import datetime

from onerow.core.errors import StoreError
from onerow.engine.logfiles import LogFiles
from onerow.engine.worker.hands import Hands
from onerow.engine.worker.output import Output
from onerow.ports import LogLine, Store

_BATCH = 2_000
_SHARE = 500  # lines of one task in a batch, while others wait


class Scribe:
    """Writes what attempts said; each in its turn, so that nobody waits behind a flood."""

    def __init__(self, store: Store, hands: Hands, files: LogFiles | None = None) -> None:
        self._store = store
        self._hands = hands
        self._files = files
        self._kept: list[tuple[Output, list[LogLine]]] = []

    def tick(self, now: datetime) -> float:
        """One round; seconds to rest."""
        speaking = self._hands.speaking
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
        return 0.0 if speaking else 0.05

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
