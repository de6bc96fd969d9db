"""Operations on phases, schedules and workers, as dialogs: pause, resume, limit, run now, drain."""

import json
import shlex
from collections.abc import Iterable
from typing import Any

from onerow.cli.session import tasks_text
from onerow.core.errors import BadInput
from onerow.core.rates import parse_rate
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Lane, Pause, Scheduled, WorkerLine
from onerow.tui.acts import Act, Field, Report, Values

_REASON = Field("reason", "reason, shown by onerow why")


def pause_act(queue: Queue, line: str, lanes: Iterable[Lane]) -> Act:
    """Return the dialog that pauses a line, PIPELINE/PHASE or PIPELINE/* for the whole pipeline, or resumes it.

    A phase whose whole pipeline is paused is resumed with its pipeline.
    """
    pipeline, _, phase = line.partition("/")
    pauses = [lane.paused for lane in lanes if lane.pipeline == pipeline and phase in ("*", lane.phase)]
    # A renamed phase may be paused under its former name.
    pause = next((each for each in pauses if each is not None and (phase != "*" or each.phase == "*")), None)
    if pause is not None:
        phase = pause.phase
    name = pipeline if phase == "*" else f"{pipeline}.{phase}"
    words = [pipeline] if phase == "*" else [pipeline, phase]
    if pause is not None:
        return _resume_act(queue, name, words, pause, lambda: queue.resume(pipeline, phase))

    def perform(values: Values, report: Report) -> str:
        queue.pause(pipeline, phase, reason=values.get("reason", "").strip())
        return f"paused {name}"

    return Act(
        "pause",
        f"Pause {name}? Running tasks continue; no other task is claimed.",
        lambda values: _pause_command(words, values),
        perform,
        (_REASON,),
    )


def schedule_pause_act(queue: Queue, each: Scheduled) -> Act:
    """Return the dialog that pauses or resumes a schedule."""
    name, words = f"schedule {each.cron.name}", [each.pipeline, f"cron:{each.cron.name}"]
    if each.pause is not None:
        return _resume_act(queue, name, words, each.pause, lambda: queue.crons.resume(each.pipeline, each.cron.name))

    def perform(values: Values, report: Report) -> str:
        queue.crons.pause(each.pipeline, each.cron.name, reason=values.get("reason", "").strip())
        return f"paused {name}"

    question = f"Pause {name} of {each.pipeline}? Times that pass are not caught up."
    return Act("pause", question, lambda values: _pause_command(words, values), perform, (_REASON,))


def _pause_command(words: list[str], values: Values) -> str:
    reason = values.get("reason", "").strip()
    return shlex.join(["onerow", "pause", *words, *(["--reason", reason] if reason else [])])


def _resume_act(queue: Queue, name: str, words: list[str], pause: Pause, resume: object) -> Act:
    why = f": {pause.reason}" if pause.reason else ""

    def perform(values: Values, report: Report) -> str:
        assert callable(resume)
        return f"resumed {name}" if resume() else f"{name} was not paused"

    question = f"Resume {name}? {pause.by} paused it{why}."
    return Act("resume", question, lambda values: shlex.join(["onerow", "resume", *words]), perform)


def limit_act(queue: Queue, lane: Lane, rate: str | None = None, rate_per_key: str | None = None) -> Act:
    """Return the dialog that sets the limits of a phase; the rates too if their present values are given."""
    name = f"{lane.pipeline}.{lane.phase}"
    now = {"concurrency": _spelled(lane.limit), "per_key": _spelled(lane.per_key)}
    fields = [
        Field("concurrency", "at once (none: any number)", now["concurrency"], True, limit_of),
        Field("per_key", "at once for each limit key", now["per_key"], True, limit_of),
    ]
    if rate is not None:
        now |= {"rate": rate or "none", "rate_per_key": rate_per_key or "none"}
        fields += [
            Field("rate", "rate, like 60/min, or none", now["rate"], True, rate_of),
            Field("rate_per_key", "rate for each limit key", now["rate_per_key"], True, rate_of),
        ]

    def changed(values: Values) -> dict[str, str]:
        return {field: values[field].strip() for field in now if values.get(field, now[field]).strip() != now[field]}

    def perform(values: Values, report: Report) -> str:
        if values.get("reset", "").strip():
            queue.reset_limit(lane.pipeline, lane.phase)
            return f"{name} has the limits of the code again"
        given = changed(values)
        if not given:
            return "no limit was changed"
        limits: dict[str, Any] = {
            field: limit_of(text) if field in ("concurrency", "per_key") else rate_of(text)
            for field, text in given.items()
        }
        queue.set_limit(lane.pipeline, lane.phase, **limits, reason=values.get("reason", "").strip())
        return f"set the limits of {name}"

    def command(values: Values) -> str:
        words = ["onerow", "limit", lane.pipeline, lane.phase]
        if values.get("reset", "").strip():
            return shlex.join([*words, "--reset"])
        given = changed(values)
        words += [given["concurrency"]] if "concurrency" in given else []
        for field in ("per_key", "rate", "rate_per_key"):
            words += [f"--{field.replace('_', '-')}", given[field]] if field in given else []
        reason = values.get("reason", "").strip()
        return shlex.join([*words, *(["--reason", reason] if reason and given else [])])

    return Act(
        "limit",
        f"Set the limits of {name}? {lane.processing} of its tasks run now; those above the limit finish first.",
        command,
        perform,
        (*fields, _REASON, Field("reset", "yes: limits of the code again", check=_check_reset)),
    )


def _spelled(limit: int | None) -> str:
    return "none" if limit is None else str(limit)


def _check_reset(text: str) -> None:
    if text.strip() != "yes":
        raise BadInput("write yes to return to the limits of the code, or leave it empty", field="reset")


def limit_of(text: str) -> int | None:
    """Return the limit that was typed; None for 'none'."""
    text = text.strip()
    if text == "none":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise BadInput(f"a limit is a whole number from 1 to 10,000, or none, not {text!r}", field="limit")
    return int(text)


def rate_of(text: str) -> str | None:
    """Return the rate that was typed; None for 'none'."""
    text = text.strip()
    if text == "none":
        return None
    parse_rate(text, "rate")
    return text


def run_now_act(queue: Queue, each: Scheduled) -> Act:
    """Return the dialog that adds the task of a schedule now."""
    cron = each.cron
    metadata = {"cron": cron.name}
    words = ["onerow", "add", each.pipeline]
    if cron.payload is not None:
        words += ["--payload", json.dumps(cron.payload, ensure_ascii=False)]
    if cron.user_id:
        words += ["--user", cron.user_id]
    words += ["--metadata", json.dumps(metadata, ensure_ascii=False)]

    def perform(values: Values, report: Report) -> str:
        task = queue.add(each.pipeline, cron.payload, user_id=cron.user_id, metadata=metadata)
        return f"added {task.task_id}"

    question = f"Add a task of the schedule {cron.name} of {each.pipeline} now? Its next time stays as it is."
    return Act("run now", question, lambda values: shlex.join(words), perform)


def drain_act(queue: Queue, worker: WorkerLine) -> Act:
    """Return the dialog that asks a worker to drain."""

    def perform(values: Values, report: Report) -> str:
        queue.drain(worker.name)
        return f"{worker.name} was asked to drain"

    running = tasks_text(len(worker.holds))
    question = f"Drain {worker.name}? It claims no more, finishes {running} and ends; no process takes its place."
    return Act("drain", question, lambda values: shlex.join(["onerow", "drain", worker.name]), perform, final=True)
