"""The registrar: what operators have set, read about once a second; which worker serves what, kept on a roll."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from time import monotonic

from onerow.core.errors import CodeTooOld, StoreError
from onerow.core.failure import Failure
from onerow.engine import definitions
from onerow.engine.definitions import WORKER, Controls
from onerow.engine.worker.attempt import Attempt, Lane
from onerow.engine.worker.hands import Hands
from onerow.engine.worker.identity import Identity
from onerow.ports import Note, Store

_ROLL_EVERY = 5.0
_REPORT_EVERY = 1.0


class Registrar:
    """Knows the limits, pauses and holds in force, and keeps this worker on the roll."""

    def __init__(self, store: Store, identity: Identity, lanes: Sequence[Lane], concurrency: int) -> None:
        self._store = store
        self._identity = identity
        self._lanes = lanes
        self._concurrency = concurrency
        self._controls = Controls()
        self._own_holds: dict[tuple[str, str], datetime] = {}
        self._to_hold: deque[tuple[str, str, datetime, str, str]] = deque()
        self._roll_at = 0.0
        self._roll_version = 0
        self._report_at = 0.0
        self.draining = False
        self.outdated: Callable[[CodeTooOld], None] = lambda error: None

    def tick(self, now: datetime) -> float:
        """One round; seconds to rest."""
        self._write_holds()
        self._controls = definitions.load_controls(self._store)
        if monotonic() >= self._roll_at:
            try:
                self._store.check()
            except CodeTooOld as error:
                self.outdated(error)  # someone migrated the store past us: finish what we hold, claim no more
            self.enrol(now)
        return 1.0

    def enrol(self, now: datetime) -> None:
        """Write this worker's line of the roll."""
        body = {
            "worker": self._identity.name,
            "host": self._identity.host,
            "boot": self._identity.boot,
            "namespace": self._identity.namespace,
            "pid": self._identity.pid,
            "born": self._identity.born,
            "started_at": self._identity.started_at.isoformat(),
            "concurrency": self._concurrency,
            "phases": [[lane.pipeline, lane.phase.name] for lane in self._lanes],
            "draining": self.draining,
        }
        if self._store.write_notes([Note(WORKER, self._identity.name, body, self._roll_version)])[0]:
            self._roll_version += 1
        else:  # someone took us for dead, and off the roll
            mine = [note for note in self._store.notes(WORKER) if note.name == self._identity.name]
            self._roll_version = mine[0].version if mine else 0
        self._roll_at = monotonic() + _ROLL_EVERY

    def drain(self) -> None:
        """From the next round on, the roll says that this worker takes nothing more."""
        self.draining = True
        self._roll_at = 0.0

    def leave(self) -> None:
        """Off the roll."""
        self._store.drop_notes(WORKER, [self._identity.name])

    def terms(self, lane: Lane, now: datetime) -> tuple[int | None, int | None] | None:
        """The limits of a phase, or None while nobody may claim from it."""
        controls = self._controls
        if self._own_holds and self._own_holds.get((lane.pipeline, lane.phase.name), now) > now:
            return None
        if controls.pauses and controls.pause_of(lane.pipeline, lane.phase.name) is not None:
            return None
        if controls.holds and controls.held_until(lane.pipeline, lane.phase.name, now) is not None:
            return None
        return controls.limits_of(lane.pipeline, lane.phase)

    def limits(self, lane: Lane) -> tuple[int | None, int | None]:
        """The limits of a phase, whether or not it may be claimed from now."""
        return self._controls.limits_of(lane.pipeline, lane.phase)

    def hold(self, lane: Lane, why: Failure, now: datetime) -> None:
        """The other side asked the whole phase to wait: nobody claims from it until then, we from this very moment."""
        until = now + (why.after or timedelta(0))
        self._own_holds[lane.pipeline, lane.phase.name] = until
        self._to_hold.append((lane.pipeline, lane.phase.name, until, why.message, self._identity.name))
        try:
            self._write_holds()
        except StoreError:
            pass  # the store is away; the next round writes it

    def _write_holds(self) -> None:
        while self._to_hold:
            definitions.set_hold(self._store, *self._to_hold[0])
            self._to_hold.popleft()

    def due_reports(self, hands: Hands) -> list[Attempt]:
        """Attempts with progress to write, at most once a second."""
        if monotonic() < self._report_at:
            return []
        due = [attempt for attempt in list(hands.attempts.values()) if attempt.progress_json is not None]
        if due:
            self._report_at = monotonic() + _REPORT_EVERY
        finished = {attempt.task.task_id for attempt, _ in list(hands.finished)}
        return [attempt for attempt in due if attempt.task.task_id not in finished]
