"""The table of all moves: the rule of each move and the statuses before and after it. Rendered as docs/states.md."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onerow.core import corruption, rules
from onerow.core.rules import checkpoints
from onerow.core.status import CANCELLED, COMPLETED, ENDS, FAILED, NEXT, OPEN, PROCESSING, WAITING, Status


class Line(msgspec.Struct, frozen=True):
    """One move: `leads` maps each status in which the rule is allowed to the statuses that can follow."""

    name: str
    by: str
    rule: Callable[..., Any]
    leads: Mapping[Status, frozenset[Status]]

    @property
    def stays(self) -> bool:
        """Whether the move never changes the status."""
        return all(ends == {start} for start, ends in self.leads.items())

    @property
    def sentence(self) -> str:
        """The first line of the rule's docstring."""
        return str(self.rule.__doc__).partition("\n")[0]


def _to(*ends: Status) -> frozenset[Status]:
    return frozenset(ends)


def _same(statuses: frozenset[Status]) -> Mapping[Status, frozenset[Status]]:
    return {status: _to(status) for status in Status if status in statuses}


_STORE, _WORKER, _SWEEP, _USERS = "the store", "the worker", "a sweep", "users, programs"

MOVES: tuple[Line, ...] = (
    Line("claim", _STORE, rules.claimed, {WAITING: _to(PROCESSING)}),
    Line("complete", _WORKER, rules.complete, {PROCESSING: _to(WAITING, COMPLETED, CANCELLED)}),
    Line("finish", _WORKER, rules.finish, {PROCESSING: _to(COMPLETED, CANCELLED)}),
    Line("fail", _WORKER, rules.fail, {PROCESSING: _to(WAITING, FAILED, CANCELLED)}),
    Line("crash", _WORKER, rules.crash, {PROCESSING: _to(WAITING, FAILED, CANCELLED)}),
    Line("interrupt", _WORKER, rules.interrupt, {PROCESSING: _to(WAITING, FAILED, CANCELLED)}),
    Line("snooze", _WORKER, rules.snooze, {PROCESSING: _to(WAITING, CANCELLED)}),
    Line("sleep", _WORKER, rules.sleep, {PROCESSING: _to(WAITING, CANCELLED)}),
    Line("skip", _WORKER, rules.skip, {PROCESSING: _to(WAITING, COMPLETED, CANCELLED)}),
    Line("cancel itself", _WORKER, rules.cancel_itself, {PROCESSING: _to(CANCELLED)}),
    Line("hand back", _WORKER, rules.hand_back, {PROCESSING: _to(WAITING, CANCELLED)}),
    Line("stop", _WORKER, rules.stop_cancelled, {PROCESSING: _to(CANCELLED)}),
    Line("park", _WORKER, rules.park, {PROCESSING: _to(WAITING, CANCELLED)}),
    Line("wait", _WORKER, rules.wait, {PROCESSING: _to(WAITING, CANCELLED)}),
    Line("report", _WORKER, rules.report, {PROCESSING: _to(PROCESSING)}),
    Line("spawn", _WORKER, checkpoints.spawned, {PROCESSING: _to(PROCESSING)}),
    Line("remember", _WORKER, checkpoints.remember, {PROCESSING: _to(PROCESSING)}),
    Line("rescue", _SWEEP, rules.rescue, {PROCESSING: _to(WAITING, FAILED, CANCELLED)}),
    Line("uncount", _WORKER, rules.uncount_rescue, _same(OPEN)),
    Line("pass", _SWEEP, rules.pass_, {WAITING: _to(WAITING, COMPLETED)}),
    Line("expire", _SWEEP, rules.expire, {WAITING: _to(WAITING, FAILED)}),
    Line("gather", _SWEEP, rules.gather, {WAITING: _to(WAITING, COMPLETED, FAILED)}),
    Line(
        "quarantine",
        _SWEEP,
        corruption.quarantine,
        {WAITING: _to(FAILED), PROCESSING: _to(FAILED), **_same(ENDS)},
    ),
    Line("rename", _SWEEP, rules.rename, _same(_to(WAITING))),
    Line("release", _USERS, rules.release, _same(_to(WAITING))),
    Line("release key", _SWEEP, rules.release_key, _same(ENDS)),
    Line("bury", _SWEEP, rules.bury, _same(ENDS)),
    Line("signal", _USERS, rules.signal, _same(OPEN)),
    Line(
        "cancel",
        _USERS,
        rules.cancel,
        {WAITING: _to(CANCELLED), PROCESSING: _to(PROCESSING), FAILED: _to(CANCELLED)},
    ),
    Line("fail by hand", _USERS, rules.fail_by_hand, {WAITING: _to(FAILED)}),
    Line("retry", _USERS, rules.retry, {FAILED: _to(WAITING)}),
    Line("replay", _USERS, rules.replay, {COMPLETED: _to(WAITING), FAILED: _to(WAITING)}),
    Line(
        "finish by hand",
        _USERS,
        rules.finish_by_hand,
        {WAITING: _to(WAITING, COMPLETED), FAILED: _to(WAITING, COMPLETED)},
    ),
    Line("reschedule", _USERS, rules.reschedule, _same(_to(WAITING))),
    Line("set priority", _USERS, rules.set_priority, _same(OPEN)),
    Line("annotate", _USERS, rules.annotate, _same(frozenset(Status))),
)


def states_page() -> str:
    """Render the tables of statuses and moves as a Markdown page."""
    arrows = [(old, new) for old in Status for new in Status if old != new and new in NEXT[old]]
    lines = [
        "# Statuses and moves",
        "",
        "Rendered by `python docs/render_states.py` from the tables in `onerow.core`: `status.NEXT` and `moves.MOVES`.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> waiting: add",
        *(f"    {old} --> {new}: {_names(old, new)}" for old, new in arrows),
        *(f"    {end} --> [*]" for end in Status if end in ENDS),
        "```",
        "",
        "| from ↓ to → | " + " | ".join(Status) + " |",
        "| --- |" + " --- |" * len(Status),
        *(f"| **{old}** | " + " | ".join(_names(old, new) for new in Status) + " |" for old in Status),
        "",
        "| move | by | from → to | rule | effect |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {m.name} | {m.by} | {_arrows(m)} | `{m.rule.__name__}` | {m.sentence} |" for m in MOVES),
        "",
    ]
    return "\n".join(lines)


def _names(old: Status, new: Status) -> str:
    return ", ".join(m.name for m in MOVES if new in m.leads.get(old, ()) and not m.stays)


def _arrows(line: Line) -> str:
    if line.stays:
        return f"{', '.join(line.leads)}: stays"
    return "; ".join(f"{old} → {', '.join(new for new in Status if new in ends)}" for old, ends in line.leads.items())
