"""Rate limits: windows stored as notes and written by compare-and-swap before an attempt starts."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from onerow.core import rates, rules
from onerow.core.errors import LostRace
from onerow.core.plan import PhasePlan
from onerow.core.rates import Rate, Verdict, Window, parse_rate
from onerow.core.task import Task
from onerow.core.times import since_epoch
from onerow.engine.control import notes
from onerow.ports import Move, Note, Store

RATE = "rate"


class Rates:
    """Rate limits of phases: claimed tasks are admitted, or given back before they start."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Note] = {}  # the notes as last read or written

    def starts_left(self, pipeline: str, phase: PhasePlan, now: datetime) -> int | None:
        """Number of tasks that may start now, as last read; None: unlimited."""
        whole, _ = _of(phase)
        if whole is None:
            return None
        return rates.starts_left(whole, _window(self._last_known(pipeline, phase)).starts, since_epoch(now))

    def free_at(self, pipeline: str, phase: PhasePlan, now: datetime) -> datetime:
        """Time at which the next task may start, as last read."""
        whole, _ = _of(phase)
        window = _window(self._known.get(f"{pipeline}/{phase.name}"))
        return now if whole is None else _moment(rates.free_at(whole, window.starts, since_epoch(now)))

    def admit(
        self, pipeline: str, phase: PhasePlan, tasks: Sequence[Task]
    ) -> tuple[list[Task], list[tuple[Task, datetime | None]]]:
        """Record and return the tasks that may start; also return the others, each with the time it is put off to."""
        whole, each = _of(phase)
        name = f"{pipeline}/{phase.name}"
        keys = [task.limit_key for task in tasks]
        verdicts: list[Verdict] = []

        def decide(note: Note | None) -> Any:
            verdicts.append(rates.admit(_window(note), keys, whole, each, since_epoch(self._store.now())))
            return msgspec.to_builtins(verdicts[-1].window)

        try:
            written = notes.update(self._store, RATE, name, decide, self._last_known(pipeline, phase))
        except LostRace:  # too many workers share the rate: the tasks go back and are claimed again later
            return [], [(task, None) for task in tasks]
        assert written is not None
        verdict = verdicts[-1]
        self._known[name] = replace(written, body=verdict.window)
        later = [(tasks[position], _moment(until) if until else None) for position, until in verdict.put_off]
        return [tasks[position] for position in verdict.admitted], later

    def _last_known(self, pipeline: str, phase: PhasePlan) -> Note:
        """Return the note as last read or written; a renamed phase starts with the window of its former name."""
        name = f"{pipeline}/{phase.name}"
        if name not in self._known:
            found = [note for each in phase.names if (note := notes.find(self._store, RATE, f"{pipeline}/{each}"))]
            known = found[0] if found else Note(RATE, name, Window())
            self._known[name] = known if known.name == name else Note(RATE, name, known.body)
        return self._known[name]


def _window(note: Note | None) -> Window:
    return Window() if note is None else msgspec.convert(note.body, Window)


def give_back(task: Task, until: datetime | None, now: datetime, by: str) -> Move:
    """Return the move that gives back a claimed task which may not start yet."""
    return Move(task, rules.hand_back(task, now, by=by, started=False, run_at=until))


def _of(phase: PhasePlan) -> tuple[Rate | None, Rate | None]:
    return parse_rate(phase.rate) if phase.rate else None, parse_rate(
        phase.rate_per_key
    ) if phase.rate_per_key else None


def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)
