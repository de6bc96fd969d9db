"""Rate limits: windows stored as notes and written by compare-and-swap before an attempt starts."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from onerow.core import rates, rules
from onerow.core.plan import PhasePlan
from onerow.core.rates import Rate, Window, parse_rate
from onerow.core.task import Task
from onerow.core.times import since_epoch
from onerow.ports import Move, Note, Store

RATE = "rate"
_TRIES = 50


class Rates:
    """Rate limits of phases: claimed tasks are admitted, or given back before they start."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._windows: dict[str, tuple[Window, int]] = {}  # name → (window as last read, version of its note)

    def starts_left(self, pipeline: str, phase: PhasePlan, now: datetime) -> int | None:
        """Number of tasks that may start now, as last read; None: unlimited."""
        whole, _ = _of(phase)
        if whole is None:
            return None
        name = f"{pipeline}/{phase.name}"
        window, _ = self._windows.get(name) or self._load(name)
        return rates.starts_left(whole, window.starts, since_epoch(now))

    def free_at(self, pipeline: str, phase: PhasePlan, now: datetime) -> datetime:
        """Time at which the next task may start, as last read."""
        whole, _ = _of(phase)
        window, _ = self._windows.get(f"{pipeline}/{phase.name}", (Window(), 0))
        return now if whole is None else _moment(rates.free_at(whole, window.starts, since_epoch(now)))

    def admit(
        self, pipeline: str, phase: PhasePlan, tasks: Sequence[Task]
    ) -> tuple[list[Task], list[tuple[Task, datetime | None]]]:
        """Record and return the tasks that may start; also return the others, each with the time it is put off to."""
        whole, each = _of(phase)
        name = f"{pipeline}/{phase.name}"
        keys = [task.limit_key for task in tasks]
        for _ in range(_TRIES):
            window, version = self._windows.get(name) or self._load(name)
            verdict = rates.admit(window, keys, whole, each, since_epoch(self._store.now()))
            if self._store.write_notes([Note(RATE, name, msgspec.to_builtins(verdict.window), version)])[0]:
                self._windows[name] = (verdict.window, version + 1)
                later = [(tasks[position], _moment(until) if until else None) for position, until in verdict.put_off]
                return [tasks[position] for position in verdict.admitted], later
            self._load(name)
        return [], [(task, None) for task in tasks]

    def _load(self, name: str) -> tuple[Window, int]:
        note = next((note for note in self._store.notes(RATE) if note.name == name), None)
        self._windows[name] = (Window(), 0) if note is None else (msgspec.convert(note.body, Window), note.version)
        return self._windows[name]


def give_back(task: Task, until: datetime | None, now: datetime, by: str) -> Move:
    """Return the move that gives back a claimed task which may not start yet."""
    return Move(task, rules.hand_back(task, now, by=by, started=False, run_at=until))


def _of(phase: PhasePlan) -> tuple[Rate | None, Rate | None]:
    return parse_rate(phase.rate) if phase.rate else None, parse_rate(
        phase.rate_per_key
    ) if phase.rate_per_key else None


def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)
