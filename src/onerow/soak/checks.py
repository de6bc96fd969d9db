"""The promises as checks over a recorded run. Each takes a history and yields one sentence for each violation."""

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from onerow.soak.history import Body, History

Check = Callable[[History], Iterator[str]]
_CLOCK_ERROR = 0.5
"""Seconds by which times of the store, as a worker estimates them, may lag behind those of the records."""
ENDS = frozenset({"completed", "failed", "cancelled"})
_OUTCOME_OF = {"completed": "done", "advanced": "done"}


def lost(history: History) -> Iterator[str]:
    """Every added task has a row at the end."""
    for task in history.added:
        if task not in history.rows:
            yield f"task {task} was added and has no row"


def invented(history: History) -> Iterator[str]:
    """Every row was added by a record."""
    for task in history.rows:
        if task not in history.added:
            yield f"task {task} has a row and was never added"


def stuck(history: History) -> Iterator[str]:
    """Every task has ended when the run ends."""
    for task, row in history.rows.items():
        if row["status"] not in ENDS:
            yield f"task {task} is still {row['status']} in {row['phase']}"


def overlapping(history: History) -> Iterator[str]:
    """No second body of a task begins while the worker of the first is alive and able to send heartbeats."""
    lease = history.settings.lease
    for task, bodies in history.bodies_of.items():
        for first, second in itertools.pairwise(bodies):
            if second.begin < first.lived_until(lease) and not second.stale:
                yield f"task {task}: {_name(second)} began while {_name(first)} ran on a live worker"


def stale(history: History) -> Iterator[str]:
    """An outcome in a row comes from the body that held the lease: no later body had begun before it was settled."""
    for task in history.rows:
        bodies = history.bodies_of[task]
        for entry in history.entries(task):
            if entry["what"] not in _OUTCOME_OF or not entry.get("by"):
                continue
            same = [each for each in bodies if (each.phase, each.attempt) == (entry["phase"], entry.get("attempt"))]
            if not same:
                yield f"task {task}: {entry['what']} in {entry['phase']} without a body of attempt {entry.get('attempt')}"
            elif all(each.worker != entry["by"] for each in same):
                names = ", ".join(sorted({each.worker for each in same}))
                yield f"task {task}: {entry['what']} in {entry['phase']} by {entry['by']}, but {names} had the attempt"
            elif all(each.outcome != "done" for each in same):
                yield f"task {task}: {entry['what']} in {entry['phase']}, but no body of the attempt returned"


def doubled(history: History) -> Iterator[str]:
    """A task completes each phase once, and once more for each replay or manual finish."""
    for task in history.rows:
        counts = Counter(entry["phase"] for entry in history.entries(task) if entry["what"] in _OUTCOME_OF)
        allowed = 1 + len(history.operations(task, "replay"))
        for phase, count in counts.items():
            if count > allowed:
                yield f"task {task}: {phase} was completed {count} times"


def phase_order(history: History) -> Iterator[str]:
    """The phases of a task are completed in the order of the definition."""
    order = list(history.settings.phases)
    for task in history.rows:
        reached = -1
        for entry in history.entries(task):
            if entry["what"] == "replay":
                reached = order.index(entry["phase"]) - 1
            elif entry["what"] in _OUTCOME_OF and entry["phase"] in order:
                place = order.index(entry["phase"])
                if place != reached + 1:
                    yield f"task {task}: {entry['phase']} was completed out of order"
                reached = place


def backwards(history: History) -> Iterator[str]:
    """Tokens of a task grow from body to body."""
    for task, bodies in history.bodies_of.items():
        for first, second in itertools.pairwise(each for each in bodies if not each.stale):
            if second.token <= first.token:
                yield f"task {task}: {_name(second)} began after {_name(first)}"


def phase_limits(history: History) -> Iterator[str]:
    """Never more bodies of a phase at once than its limit."""
    yield from _exceeded(history, "phase", lambda body: (body.phase, ""))


def key_limits(history: History) -> Iterator[str]:
    """Never more bodies of a phase and key at once than the limit per key."""
    yield from _exceeded(history, "key", lambda body: (body.phase, body.key))


def _exceeded(history: History, kind: str, group: Callable[[Body], tuple[str, str]]) -> Iterator[str]:
    """A limit that was lowered counts from when the bodies that ran then have ended; its highest value until then."""
    limits: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for record in history.of("limit"):
        if record.name == kind:
            limits[record.phase].append((record.at, record.number))
    lease = history.settings.lease
    by_group: dict[tuple[str, str], list[Body]] = defaultdict(list)
    for body in history.bodies:
        if body.phase in limits and not body.stale:
            by_group[group(body)].append(body)
    for (phase, key), bodies in by_group.items():
        if kind == "key" and not key:
            continue
        running: list[Body] = []
        for body in bodies:
            running = [each for each in running if each.lived_until(lease) > body.begin]
            running.append(body)
            begun_first = min(each.begin for each in running)
            allowed = _highest(limits[phase], begun_first, body.begin)
            if allowed and len(running) > allowed:
                name = f"{phase}, key {key}" if key else phase
                yield f"{name}: {len(running)} bodies at once, {allowed} allowed ({_name(body)})"


def _highest(limits: list[tuple[float, int]], start: float, end: float) -> int:
    """Return the highest limit in a period; 0 if there was a time without one."""
    before = [number for at, number in limits if at <= start]
    within = [number for at, number in limits if start < at <= end]
    numbers = [*before[-1:], *within]
    return 0 if not before or 0 in numbers else max(numbers)


def rates(history: History) -> Iterator[str]:
    """In no second more bodies of a phase begin than its rate per second allows, with one burst of the same size."""
    begins: dict[str, list[float]] = defaultdict(list)
    for body in history.bodies:
        begins[body.phase].append(body.begin)
    for record in history.of("limit"):
        if record.name != "rate" or not record.number:
            continue
        times = begins[record.phase]
        first = 0
        for last, time in enumerate(times):
            while times[first] <= time - 1.0:
                first += 1
            if last - first + 1 > 2 * record.number:
                yield f"{record.phase}: {last - first + 1} bodies began within a second, the rate is {record.number}/s"
                break


def early(history: History) -> Iterator[str]:
    """No body begins before its task is due."""
    for task, bodies in history.bodies_of.items():
        added = history.added.get(task)
        if added is not None and bodies and added.until > bodies[0].begin and bodies[0].pid not in history.stepped:
            yield f"task {task} began {added.until - bodies[0].begin:.3f} s before it was due"


def after_the_end(history: History) -> Iterator[str]:
    """No body begins after its task has ended, unless an operator retried or replayed it since."""
    for task, row in history.rows.items():
        if row["status"] not in ENDS or history.operations(task, "retry", "replay"):
            continue
        last = _last_body(history, task)
        for body in history.bodies_of[task]:
            # The body that ended the task is known by its token; times of a store lag if its answers do.
            late = body.token > last.token if last else body.begin > row.get("ended_at", body.begin) + _CLOCK_ERROR
            if late and not body.stale:
                yield f"task {task}: {_name(body)} began after the task was {row['status']}"


def _last_body(history: History, task: str) -> Body | None:
    """Return the body whose outcome is the last entry of the row; None if an operation ended the task."""
    entries = history.entries(task)
    if not entries:
        return None
    wanted = tuple(entries[-1].get(name) for name in ("phase", "attempt", "by"))
    same = [each for each in history.bodies_of[task] if (each.phase, each.attempt, each.worker) == wanted]
    return same[-1] if same else None


def payloads(history: History) -> Iterator[str]:
    """Each body of a task sees the payload that was added."""
    for task, bodies in history.bodies_of.items():
        added = history.added.get(task)
        for body in bodies:
            if added is not None and body.hash and body.hash != added.hash:
                yield f"task {task}: {_name(body)} saw another payload"


def results(history: History) -> Iterator[str]:
    """The stored result of a phase is the one that its last successful body returned."""
    for task, row in history.rows.items():
        stored = row.get("results", {})
        returned: dict[str, list[str]] = defaultdict(list)
        for body in history.bodies_of[task]:
            if body.outcome == "done":
                returned[body.phase].append(body.result)
        for phase, value in stored.items():
            if phase in history.settings.phases and value not in returned[phase]:
                yield f"task {task}: the stored result of {phase} was returned by no body"


def children(history: History) -> Iterator[str]:
    """A completed parent counted as many children as were spawned, and none of them is open."""
    spawned: dict[str, list[str]] = defaultdict(list)
    for record in history.added.values():
        if record.parent:
            spawned[record.parent].append(record.task)
    for parent, tasks in spawned.items():
        row = history.rows.get(parent)
        if row is None or row["status"] != "completed":
            continue
        counted = row.get("children_counted", len(tasks))
        if counted != len(tasks):
            yield f"task {parent} counted {counted} children, {len(tasks)} were spawned"
        still = [each for each in tasks if history.rows.get(each, {}).get("status") not in ENDS]
        if still:
            yield f"task {parent} is completed, but its child {still[0]} is open"


def signals(history: History) -> Iterator[str]:
    """Each signal that was sent is consumed at most once."""
    for task in history.by_task:
        sent = Counter(record.hash for record in history.operations(task, "signal"))
        # A wait that had its signal gets the same one in each later attempt.
        records = [record for record in history.by_task[task] if record.what == "signal taken"]
        waits = {(record.hash, record.name or f"record {number}") for number, record in enumerate(records)}
        taken = Counter(signal for signal, _ in waits)
        for name, count in taken.items():
            if count > 1 + len(history.operations(task, "replay")):
                yield f"task {task}: signal {name} was consumed {count} times"
            if name not in sent:
                yield f"task {task}: signal {name} was consumed and never sent"


def unique_keys(history: History) -> Iterator[str]:
    """No two open tasks have the same unique key."""
    holders: dict[str, list[str]] = defaultdict(list)
    for record in history.added.values():
        if record.name:
            holders[record.name].append(record.task)
    for name, tasks in holders.items():
        spans = sorted((history.added[task].at, _ended(history.rows.get(task, {})), task) for task in tasks)
        for (_, first_end, first), (second_start, _, second) in itertools.pairwise(spans):
            if second_start < first_end - _CLOCK_ERROR:
                yield f"unique key {name}: task {second} was added while {first} was open"


def _ended(row: dict[str, Any]) -> float:
    """Return when a task ended: never if it is open, always if a worker with a wrong clock wrote the time."""
    return float(row.get("ended_at") or (float("-inf") if row.get("status") in ENDS else float("inf")))


def cron(history: History) -> Iterator[str]:
    """A schedule adds one task for each nominal time."""
    times = Counter((record.name, record.key) for record in history.of("cron"))
    for (schedule, nominal), count in times.items():
        if count > 1:
            yield f"schedule {schedule}: {count} tasks for {nominal}"


class Recovery(NamedTuple):
    """A body that was cut by a kill, and how long its task waited for the next one, without outages of the store."""

    task: str
    seconds: float
    disturbed: bool  # by another fault


def recovery_times(history: History) -> Iterator[Recovery]:
    """Yield how long each task whose worker was killed waited until it began again."""
    fault_times = [each.at for each in history.faults]
    for task, bodies in history.bodies_of.items():
        for first, second in itertools.pairwise(bodies):
            if first.gone is None or not first.cut_by_kill or first.phase != second.phase:
                continue
            waited = second.begin - first.gone - history.outage_between(first.gone, second.begin)
            others = bisect_left(fault_times, second.begin) > bisect_right(fault_times, first.gone)
            yield Recovery(task, waited, others)


def recovery(history: History) -> Iterator[str]:
    """A task whose worker was killed begins again within the lease and some seconds; of a hundred, one may be disturbed."""
    bound = history.settings.lease + history.settings.recovery
    found = sorted(recovery_times(history), key=lambda each: each.seconds)
    for each in found:
        if each.seconds > bound and not each.disturbed:
            yield f"task {each.task} began again {each.seconds:.1f} s after its worker was killed"
    if len(found) >= 100 and (late := found[int(len(found) * 0.99)].seconds) > bound:
        yield f"one of a hundred tasks waited {late:.1f} s or longer after its worker was killed"


def processes(history: History) -> Iterator[str]:
    """No process of the run is left at its end."""
    for record in history.of("process"):
        yield f"process {record.pid} ({record.name}) was still there"


def fold(history: History) -> Iterator[str]:
    """The final status follows from the records: a completed task has a body that returned in its last phase."""
    last = history.settings.last
    for task, row in history.rows.items():
        bodies = history.bodies_of[task]
        finished = any(body.phase in last and body.outcome == "done" for body in bodies)
        by_hand = bool(history.operations(task, "finish"))
        if row["status"] == "completed" and not finished and not by_hand and not row.get("child"):
            yield f"task {task} is completed, but no body returned in {' or '.join(sorted(last))}"
        if row["status"] == "cancelled" and not history.operations(task, "cancel") and not row.get("child"):
            yield f"task {task} is cancelled, but no cancel was recorded"


def innocents(history: History) -> Iterator[str]:
    """A task whose handler never raises is not failed by the faults around it."""
    for task, row in history.rows.items():
        if row["status"] == "failed" and task not in history.settings.may_fail:
            yield f"task {task} failed in {row['phase']}: {row.get('error', '')}"


def cancelled(history: History) -> Iterator[str]:
    """After a cancel was accepted, no body of the task begins any more."""
    for task in history.rows:
        for record in history.operations(task, "cancel"):
            later = [body for body in history.bodies_of[task] if body.begin > record.at and not body.stale]
            again = [each for each in history.operations(task, "retry", "replay") if each.at > record.at]
            if record.outcome == "accepted" and later and not again:
                yield f"task {task}: {_name(later[0])} began after the cancel was accepted"


CHECKS: dict[str, Check] = {
    "lost": lost,
    "invented": invented,
    "stuck": stuck,
    "overlapping": overlapping,
    "stale": stale,
    "doubled": doubled,
    "phase order": phase_order,
    "tokens": backwards,
    "phase limits": phase_limits,
    "key limits": key_limits,
    "rates": rates,
    "early": early,
    "after the end": after_the_end,
    "payloads": payloads,
    "results": results,
    "children": children,
    "signals": signals,
    "unique keys": unique_keys,
    "cron": cron,
    "recovery": recovery,
    "processes": processes,
    "fold": fold,
    "innocents": innocents,
    "cancelled": cancelled,
}


def check(history: History) -> dict[str, list[str]]:
    """Return the violations of each promise; an empty list for a promise that was kept."""
    return {name: list(each(history)) for name, each in CHECKS.items()}


def _name(body: Body) -> str:
    return f"attempt {body.attempt} of {body.phase} (token {body.token}, {body.worker})"
