"""What a recorded soak shows: violations by rule, figures, and the text that a person reads."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from onerow.core.errors import BadInput
from onerow.soak.checks import check, recovery_times
from onerow.soak.history import History, Settings
from onerow.soak.records import read_records

_MOST_SHOWN = 5


class _Facts(msgspec.Struct):
    """The file settings.json of a run."""

    phases: tuple[str, ...]
    last: tuple[str, ...]
    lease: float
    recovery: float
    tasks: int
    seed: int
    workers: int
    store: str
    began: str


class Report(msgspec.Struct, frozen=True):
    """The outcome of a soak. violations: sentences by rule, for every rule."""

    figures: dict[str, Any]
    injected: dict[str, int]
    violations: dict[str, list[str]]

    @property
    def failed(self) -> bool:
        return any(self.violations.values())

    def lines(self) -> list[str]:
        """Return the report as text."""
        lines = [f"{name:<28} {_spell(value)}" for name, value in self.figures.items()]
        if self.injected:
            lines += ["", "faults and operations"]
            lines += [f"  {name:<26} {count:,}" for name, count in self.injected.items()]
        lines += ["", "rules"]
        for rule, found in self.violations.items():
            lines.append(f"  {rule:<26} {'kept' if not found else f'{len(found):,} violations'}")
            lines += [f"      {each}" for each in found[:_MOST_SHOWN]]
            if len(found) > _MOST_SHOWN:
                lines.append(f"      and {len(found) - _MOST_SHOWN:,} more")
        return lines


def read_report(folder: Path) -> Report:
    """Check the records in a folder."""
    history, facts = read_history(folder)
    recoveries = sorted(each.seconds for each in recovery_times(history))
    statuses = Counter(row["status"] for row in history.rows.values())
    bodies = history.bodies
    took = history.ended_at - history.records[0].at
    figures: dict[str, Any] = {
        "store": facts.store, "seed": facts.seed, "workers": facts.workers, "lease, s": facts.lease,
        "tasks": sum(1 for each in history.added.values() if not each.parent),
        "bodies": len(bodies), "bodies cut by a kill": sum(1 for each in bodies if each.cut_by_kill),
        "rescues": sum(entry["what"] == "rescued" for task in history.rows for entry in history.entries(task)),
        "worker processes killed": len({each.pid for each in history.kills} & {each.pid for each in bodies}),
        "pauses past the lease": sum(1 for each in history.faults if each.name == "pause" and each.pid in _pids(history)),
        **{f"tasks {status}": count for status, count in sorted(statuses.items())},
        "recovery p50, s": _part(recoveries, 0.5), "recovery p99, s": _part(recoveries, 0.99),
        "recovery longest, s": recoveries[-1] if recoveries else 0.0,
        "duration, s": took,
    }  # fmt: skip
    injected = dict(sorted(Counter(each.name for each in history.of("injected")).items()))
    return Report(figures, injected, check(history))


def read_history(folder: Path) -> tuple[History, _Facts]:
    """Return the records of a run with its settings."""
    try:
        facts = msgspec.json.decode((folder / "settings.json").read_bytes(), type=_Facts)
        records = read_records(folder)
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(
            f"{folder} has no records of a soak: {error}", fix="give the folder that `onerow soak` named", field="check"
        ) from None
    if not any(each.what == "end of run" for each in records):
        raise BadInput(
            f"the soak in {folder} did not reach its end, so its rows are not recorded",
            fix="run it again",
            field="check",
        )
    may_fail = frozenset(each.task for each in records if each.what == "add" and each.outcome == "may fail")
    settings = Settings(
        facts.phases, lease=facts.lease, recovery=facts.recovery, may_fail=may_fail, last_phases=frozenset(facts.last)
    )
    return History(records, settings), facts


def _pids(history: History) -> set[int]:
    return {each.pid for each in history.bodies}


def _part(ordered: list[float], part: float) -> float:
    """Return a percentile of sorted numbers."""
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else 0.0


def _spell(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
