"""Why a task is not running: one sentence, and the command that changes it."""

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from onerow.core.corruption import shown
from onerow.core.durations import spell_duration
from onerow.core.filters import Filter
from onerow.core.history import cancel_reason
from onerow.core.plan import PhasePlan, Plan
from onerow.core.status import CANCELLED, COMPLETED, OPEN, PROCESSING, WAITING
from onerow.core.steps import sleeps_until
from onerow.core.task import Task
from onerow.core.times import FAR, read
from onerow.engine.control import definitions
from onerow.engine.control.definitions import Controls, Pause
from onerow.engine.control.rates import Rates
from onerow.engine.control.relocation import MOVED_BY
from onerow.engine.views.workers import WorkerLine, serving
from onerow.ports import Store

_HIGHEST_LIMIT = 10_000


class Reason(msgspec.Struct, frozen=True):
    """Why a task is in its current state."""

    code: str  # one word for programs
    sentence: str
    command: str = ""  # the command that changes it; '' if none is needed
    until: datetime | None = None  # when it changes without a command
    inbox: str = ""  # the inbox that the task came from
    first: str = ""  # what to do before the command

    @property
    def advice(self) -> str:
        """What to do: the command, with what comes before it."""
        return f"{self.first}, then: {self.command}" if self.first else self.command


def why(
    store: Store, task: Task, plan: Plan | None, workers: Sequence[WorkerLine] | None, *, for_user: str | None = None
) -> Reason:
    """Return the first reason why the task is not claimed, in the order in which a claim checks them.

    workers: None if this database role may not read them, nor pauses and limits. for_user: the user who asks; details of
    other users' tasks are left out.
    """
    now = store.now()
    controls = definitions.load_controls(store)
    if task.status is PROCESSING:
        return _running(task, workers, now)
    if task.status is not WAITING:
        return _ended(task, now)
    if plan is not None and not plan.knows(task.phase):
        phases = ", ".join(phase.name for phase in plan.phases)
        return Reason(
            "no-phase",
            f"No code knows the phase {task.phase}: {task.pipeline} has {phases}. "
            f"Put renamed_from={task.phase!r} on the phase that replaces it, and publish.",
            "onerow publish APP",
        )
    if task.awaiting is not None:
        return _parked(store, task, now)
    if task.run_at > now:
        return _not_due(task, plan, now)
    if plan is None:
        return Reason(
            "no-pipeline",
            f"No code knows the pipeline {task.pipeline}: it was never published here.",
            "onerow publish APP",
        )
    if workers is None:
        return Reason(
            "hidden",
            "It is due. This database role can't see workers, pauses and limits, one of which may delay it: "
            "ask as a service role.",
        )
    phase = controls.in_force(task.pipeline, plan.phase(task.phase))
    return (
        _paused(controls, task, phase)
        or _held(controls, task, phase, now, for_user)
        or _rate_used_up(store, controls, task, phase, now)
        or _unserved(task, phase, workers)
        or _limited(store, controls, task, phase, for_user)
        or _queued(store, task, phase)
    )


def _running(task: Task, workers: Sequence[WorkerLine] | None, now: datetime) -> Reason:
    holder = f"worker {task.leased_by}"
    if task.leased_until is not None and task.leased_until <= now:
        silent = _for(now - task.leased_until)
        ended = f"Its {holder} has been silent since its lease ended {silent} ago"
        if workers is None:
            return Reason("lease-ended", f"{ended}.")
        alive = any(worker.alive for worker in workers)
        return Reason(
            "lease-ended",
            f"{ended}; "
            + ("a live worker will rescue it in a moment." if alive else "no live worker is there to rescue it."),
            "" if alive else "onerow worker APP",
        )
    if task.cancel_requested:
        return Reason("cancelling", f"Someone asked to cancel it; {holder} is stopping the work.")
    since = "" if task.started_at is None else f" for {_for(now - task.started_at)}"
    return Reason(
        "running",
        f"It is running: {task.phase}, attempt {task.attempt}{since}, held by {holder} until {_at(task.leased_until)}.",
        "",
        task.leased_until,
    )


def _ended(task: Task, now: datetime) -> Reason:
    ago = "" if task.completed_at is None else f" {_for(now - task.completed_at)} ago"
    if task.status is COMPLETED:
        return Reason("completed", f"It was completed{ago}.")
    if task.status is CANCELLED:
        reason = _line(cancel_reason(task.logs_json)) or "no reason was given"
        return Reason(
            "cancelled", f"It was cancelled in {task.phase}{ago} ({reason}); a cancelled task never runs again."
        )
    tries = f"after {task.attempt} attempts" if task.attempt > 1 else "at its first attempt"
    return Reason(
        "failed",
        f"It failed in {task.phase} {tries}{ago} ({task.error_class}): {_line(task.error)}",
        task_command("retry", task),
        first="correct the code" if task.error_class == "permanent" else "",
    )


def _parked(store: Store, task: Task, now: datetime) -> Reason:
    assert task.awaiting is not None
    deadline = task.deadline
    until = "" if deadline is None else f" until {_at(deadline)} (in {_for(deadline - now)})"
    if task.awaiting == "children":
        tallies = store.count(Filter(parent_id=task.task_id))
        total = sum(line.count for line in tallies)
        ended = total - sum(line.count for line in tallies if line.status in OPEN)
        return Reason(
            "children",
            f"It is parked for its children{until}: {ended} of {max(total, task.children or 0)} have ended.",
            _list_children(task) if ended < total else "",
            deadline,
        )
    name = task.awaiting.removeprefix("signal:")
    return Reason(
        "signal",
        f"It is parked for the signal {name}{until}.",
        task_command("signal", task, then=name),
        deadline,
    )


def _not_due(task: Task, plan: Plan | None, now: datetime) -> Reason:
    wait = f"It is not due until {_at(task.run_at)} (in {_for(task.run_at - now)})"
    command = task_command("reschedule", task, "--run-at", "now")
    if task.rescue_count:
        times = "once" if task.rescue_count == 1 else f"{task.rescue_count} times"
        return Reason(
            "suspect",
            f"{wait}: it was cut off {times} together with its worker, so it waits for its turn to run in a process of its own.",
            command,
            task.run_at,
        )
    if put_off := _put_off(task):
        return Reason("resource", f"{wait}: {put_off}.", command, task.run_at)
    if sleeps_until(task) is not None:
        return Reason(
            "sleeping",
            f"It is sleeping until {_at(task.run_at)} (in {_for(task.run_at - now)}), as its handler in {task.phase} asked.",
            command,
            task.run_at,
        )
    if task.error is not None:
        left = task.max_retries - (task.retry_count - task.retry_base)
        return Reason(
            "back-off",
            f"{wait}: attempt {task.attempt} failed ({task.error_class}: {_line(task.error)}), "
            f"{left} {'retry' if left == 1 else 'retries'} left after the next.",
            command,
            task.run_at,
        )
    if plan is not None and plan.knows(task.phase) and plan.phase(task.phase).kind == "wait_until":
        return Reason("not-due", f"{wait}, the time in payload.{plan.phase(task.phase).field}.", command, task.run_at)
    return Reason("not-due", f"{wait}.", command, task.run_at)


def _put_off(task: Task) -> str:
    """Return why a worker handed the task back before its handler was called; '' if it did not."""
    last = shown(task, "history")[-1:]
    return last[0].note if last and last[0].what == "handed back" else ""


def _paused(controls: Controls, task: Task, phase: PhasePlan) -> Reason | None:
    pause = controls.pause_of(task.pipeline, phase.names)
    if pause is None:
        return None
    because = f" because: {pause.reason}" if pause.reason else ""
    what = f"The pipeline {task.pipeline}" if pause.phase == "*" else f"The phase {phase.name}"
    return Reason("paused", f"{what} was paused by {pause.by}{because}.", resume_command(pause))


def _held(controls: Controls, task: Task, phase: PhasePlan, now: datetime, for_user: str | None) -> Reason | None:
    hold = controls.hold_of(task.pipeline, phase.names, now)
    if hold is None:
        return None
    until = read(hold.until)
    where = f" on worker {hold.by}" if hold.by else ""
    # The handler's error may contain data of another user's task.
    said = f": {_line(hold.why)}" if hold.why and for_user is None else ""
    return Reason(
        "held",
        f"The phase {phase.name} is held until {_at(until)} (in {_for(until - now)}), "
        f"because a handler{where} met a limit{said}",
        "",
        until,
    )


def _rate_used_up(store: Store, controls: Controls, task: Task, phase: PhasePlan, now: datetime) -> Reason | None:
    rates = Rates(store)
    if rates.starts_left(task.pipeline, phase, now) != 0:
        return None
    free_at = rates.free_at(task.pipeline, phase, now)
    return Reason(
        "rate",
        f"The rate {phase.rate} of {phase.name}{_set_by(controls, task, phase, 'rate')} is used up until {_at(free_at)} "
        f"(in {_for(free_at - now)}).",
        "",
        free_at,
    )


def _unserved(task: Task, phase: PhasePlan, workers: Sequence[WorkerLine]) -> Reason | None:
    served = serving(workers)
    if served.get((task.pipeline, phase.name)):
        return None
    # Pullers serve only their phase; those without code are passed by workers.
    alive = [
        worker
        for worker in workers
        if worker.alive and not worker.draining and not worker.puller and not worker.only_receives
    ]
    if not phase.has_code and any(pipeline == task.pipeline for worker in alive for pipeline, _ in worker.phases):
        return None
    if alive:
        others = f"{len(alive)} live {'worker serves' if len(alive) == 1 else 'workers serve'} other phases"
        return Reason(
            "no-worker", f"No live worker serves {task.pipeline}.{phase.name}; {others}.", "onerow worker APP"
        )
    receiving = any(worker.alive and worker.only_receives for worker in workers)
    running = "only onerow inbox is running, which adds tasks and runs none" if receiving else "none is running"
    return Reason("no-worker", f"No live worker serves {task.pipeline}.{phase.name}: {running}.", "onerow worker APP")


def _limited(store: Store, controls: Controls, task: Task, phase: PhasePlan, for_user: str | None) -> Reason | None:
    limit, per_key = controls.limits_of(task.pipeline, phase)
    here = Filter(statuses=frozenset({PROCESSING}), pipeline=task.pipeline, phases=frozenset({phase.name}))
    for most, key in ((limit, None), (per_key if task.limit_key else None, task.limit_key)):
        if most is None:
            continue
        where = here if key is None else msgspec.structs.replace(here, limit_key=key)
        running = store.find(where, limit=most, order="oldest").tasks
        if len(running) >= most:
            first = running[0]
            who = f"task {first.task_id}" if most == 1 else f"{most} tasks, the first of them {first.task_id}"
            if for_user not in (None, first.user_id):
                who = "another user's task" if most == 1 else f"{most} tasks"
            of = f"limit {most} of {phase.name}" + ("" if key is None else f" for the key {key!r}")
            of += _set_by(controls, task, phase, "concurrency" if key is None else "per_key")
            return Reason(
                "limit",
                f"The {of} is taken by {who}, held by worker {first.leased_by} until {_at(first.leased_until)}.",
                _raise_limit(task.pipeline, phase.name, most + 1, of_key=key is not None),
                first.leased_until,
            )
    return None


def _set_by(controls: Controls, task: Task, phase: PhasePlan, limit: str) -> str:
    """Return who set a limit and why, in commas; '' if it is the one in the code."""
    setting = controls.setting_of(task.pipeline, phase.names)
    if setting is None or limit not in setting.limits or not setting.by:
        return ""
    because = f" because: {_line(setting.reason)}" if setting.reason else ""
    return f", set by {setting.by}{because},"


def _queued(store: Store, task: Task, phase: PhasePlan) -> Reason:
    if not phase.has_code:
        return Reason("due", f"It is due, and a worker will let it pass {phase.name} in a moment.")
    where = Filter(
        statuses=frozenset({WAITING}),
        parked=False,
        pipeline=task.pipeline,
        phases=frozenset({task.phase}),
        due_before=store.now(),
        ahead_of=(task.priority, task.run_at, task.task_id),
    )
    ahead = sum(line.count for line in store.count(where))
    if ahead:
        verb = "task is" if ahead == 1 else "tasks are"
        return Reason(
            "queued",
            f"{ahead:,} {verb} ahead of it in {phase.name}, and the workers are busy.",
            task_command("set-priority", task, "--priority", str(max(-100, task.priority - 10)))
            if task.priority > -100
            else "",
        )
    return Reason("due", "Nothing stands in its way; a worker should take it within a second.")


def resume_command(pause: Pause) -> str:
    """Return the command that removes a pause; '' if a move set it, because the tasks run in the new store."""
    if pause.by == MOVED_BY:
        return ""
    return f"onerow resume {pause.pipeline}" + ("" if pause.phase == "*" else f" {pause.phase}")


def task_command(name: str, task: Task, *options: str, then: str = "") -> str:
    """Return a shell command on one task; `then` is the argument after the id."""
    arguments = [task.task_id, then] if then else [task.task_id]
    if task.task_id.startswith("-"):  # the shell command would parse it as an option
        return shlex.join(["onerow", name, *options, "--", *arguments])
    return shlex.join(["onerow", name, *arguments, *options])


def _list_children(task: Task) -> str:
    return shlex.join(["onerow", "list", f'parent:"{task.task_id}" status:waiting,processing'])


def _raise_limit(pipeline: str, phase: str, limit: int, *, of_key: bool) -> str:
    """Return the command that sets one limit; '' if it would be too high."""
    if limit > _HIGHEST_LIMIT:
        return ""
    return shlex.join(["onerow", "limit", pipeline, phase, *(["--per-key"] if of_key else []), str(limit)])


def _for(span: timedelta) -> str:
    """Format a duration with at most two units."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return spell_duration(timedelta(seconds=seconds if seconds < 600 else seconds // 60 * 60))
    return spell_duration(timedelta(minutes=seconds // 60 if seconds < 86400 else seconds // 3600 * 60))


def _at(moment: datetime | None) -> str:
    if moment is None or moment >= FAR:
        return "for ever"
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


def _line(text: str | None) -> str:
    return " ".join((text or "").split())[:300]
