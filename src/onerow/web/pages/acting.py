"""Acts on tasks, phases and schedules: the dialog with the exact number and the command line, and what it sends."""

import types
import typing
from collections.abc import Sequence
from typing import Any, get_args, get_origin
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from onerow.core.errors import BadInput, OnerowError, UnknownName
from onerow.core.failure import ERROR_CLASSES
from onerow.engine.control.definitions import UNCHANGED
from onerow.engine.output.masking import MASK
from onerow.engine.queue.queue import Queue
from onerow.web.acts import (
    CONTROL_ACTS,
    NAMED_ACTS,
    TASK_ACTS,
    AnnotateArguments,
    Arguments,
    ControlAct,
    NamedAct,
    TaskAct,
    audit,
    chosen,
)
from onerow.web.pages.adding import read_json
from onerow.web.pages.language import language
from onerow.web.pages.rendering import language_of, sheet
from onerow.web.problems import Problem, Refused, problem_of
from onerow.web.routing import Call, Endpoint, get, post
from onerow.web.security.roles import Role

TYPED_ABOVE = 100
"""Acts on more tasks than this are confirmed by typing the number."""
RUN_SCHEDULE = "run-schedule"
LABELS = {
    "retry": "Retry", "cancel": "Cancel tasks", "replay": "Replay", "finish": "Finish", "fail": "Fail",
    "annotate": "Replace metadata", "signal": "Send a signal", "reschedule": "Reschedule", "set-priority": "Set priority",
    "pause": "Pause", "resume": "Resume", "limit": "Set limits", RUN_SCHEDULE: "Run now",
    "drain": "Drain", "stop": "Stop",
}  # fmt: skip
_PLACEHOLDERS = {
    "run_at": "now, +10m, 2026-11-20T09:00:00+09:00",
    "concurrency": "8",
    "per_key": "2",
    "rate": "60/min",
    "rate_per_key": "5/min",
}


class Field(msgspec.Struct, frozen=True):
    """One field of the dialog, made from a field of the act's arguments."""

    name: str
    label: str
    kind: str  # text, int, bool, json, choice, limit
    value: str
    hint: str = ""
    required: bool = False
    options: Sequence[str] = ()

    @property
    def placeholder(self) -> str:
        return _PLACEHOLDERS.get(self.name, "")


def routes() -> list[Endpoint]:
    return [_show, _run]


@get("/act", Role.OPERATOR)
def _show(call: Call) -> Response:
    pairs = call.request.query_params.multi_items()
    return _dialog(call, pairs, None)


@post("/act", Role.OPERATOR)
def _run(call: Call) -> Response:
    pairs = [(key, value) for key, value in call.form_fields if key != "csrf"]
    if _get(pairs, "only_command"):  # of what is typed so far; posted, because proxies log addresses
        return _dialog(call, pairs, None)
    try:
        text, goto = _apply(call, pairs)
    except OnerowError as error:
        return _dialog(call, pairs, problem_of(error))
    if not call.request.headers.get("hx-request"):
        return call.redirect(goto or _back(pairs))
    return sheet(call, "done.html", text=text, goto=goto, bad=False)


def _get(pairs: Sequence[tuple[str, str]], name: str, default: str = "") -> str:
    return next((value for key, value in pairs if key == name), default)


def _back(pairs: Sequence[tuple[str, str]]) -> str:
    ids = [value for key, value in pairs if key == "id"]
    if len(ids) == 1:
        return f"task?{urlencode({'id': ids[0]})}"
    if _get(pairs, "thing"):
        return "workers" if _get(pairs, "name") == "drain" else "operations"
    return "operations" if ids or _get(pairs, "q") else "phases"


def _act(name: str) -> TaskAct | ControlAct | NamedAct:
    found = TASK_ACTS.get(name) or CONTROL_ACTS.get(name) or NAMED_ACTS.get(name)
    if found is None:
        raise UnknownName(f"no act {name!r}", field="name")
    return found


def _selected(queue: Queue, act: TaskAct, pairs: Sequence[tuple[str, str]]) -> Any:
    ids = [value for key, value in pairs if key == "id"]
    return act.select(queue, ids=ids) if ids else act.select(queue, where=_get(pairs, "q"))


def _dialog(call: Call, pairs: Sequence[tuple[str, str]], problem: Problem | None) -> Response:
    name = _get(pairs, "name")
    status = problem.status if problem is not None and not call.request.headers.get("hx-request") else 200
    ids = [value for key, value in pairs if key == "id"]
    hidden = [(key, value) for key, value in pairs if key in ("id", "q", "pipeline", "phase", "thing")]
    common: dict[str, Any] = {
        "problem": problem, "hidden": hidden, "ids": ids, "where": "" if ids else _get(pairs, "q"), "count": None,
        "target": "", "label": LABELS.get(name, name), "final": False, "many": False, "typed": False,
        "pace": _get(pairs, "pace"), "back": _back(pairs), "fields": [],
    }  # fmt: skip
    if name == RUN_SCHEDULE:
        line, cron_name = _schedule_line(call, pairs)
        summary = "Add one task now, with the payload of the schedule."
        return sheet(call, "act.html", status, **common | {
            "act": {"name": name, "summary": summary}, "target": cron_name, "command": line,
        })  # fmt: skip
    act = _act(name)
    _check_role(call, act)
    if isinstance(act, NamedAct):
        thing = _get(pairs, "thing")
        return sheet(call, "act.html", status, **common | {
            "act": act, "target": thing, "command": act.command(thing), "final": True,
        })  # fmt: skip
    fields = [field_of(each, pairs) for each in msgspec.structs.fields(act.arguments)]
    arguments = _shown_arguments(act, pairs)
    if isinstance(act, ControlAct):
        pipeline, phase = _get(pairs, "pipeline"), _get(pairs, "phase", "*")
        target = pipeline if phase == "*" else f"{pipeline} · {phase.removeprefix('cron:')}"
        return sheet(call, "act.html", status, **common | {
            "act": act, "target": target, "fields": fields, "command": act.command(pipeline, phase, arguments),
        })  # fmt: skip
    counted = _get(pairs, "count") if _get(pairs, "only_command") else ""
    count = int(counted) if counted.isdecimal() else _selected(call.queue, act, pairs).count
    return sheet(
        call, "act.html", status, **common | {
            "act": act, "count": count, "fields": fields, "final": (act.final and not ids) or act.final,
            "many": count > 1 or not ids, "typed": count > TYPED_ABOVE,
            "command": act.command(
                arguments, ids=ids or None, where=None if ids else _get(pairs, "q"), pace=_get(pairs, "pace").strip(),
            ),
        }
    )  # fmt: skip


def _check_role(call: Call, act: TaskAct | ControlAct | NamedAct) -> None:
    if not call.may(act.role):
        raise Refused(Problem(403, "not allowed", f"{act.name} needs the role {act.role.label}"))


def _apply(call: Call, pairs: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Run the act; return what to tell the person, and the page to go to ('': stay)."""
    name, translate = _get(pairs, "name"), language(language_of(call))
    if name == RUN_SCHEDULE:
        cron = _schedule(call, pairs)
        task = call.queue.add(_get(pairs, "pipeline"), cron.payload, user_id=cron.user_id)
        audit(call.by, f"ran the schedule {cron.name}: added {task.task_id}")
        return translate("Added {id}", id=task.task_id), f"task?{urlencode({'id': task.task_id})}"
    act = _act(name)
    _check_role(call, act)
    if isinstance(act, NamedAct):
        act.run(call.queue, _get(pairs, "thing"), call.by)
        return translate("Done: {act}", act=act.name), ""
    arguments = _arguments(act, pairs)
    if isinstance(act, ControlAct):
        act.run(call.queue, _get(pairs, "pipeline"), _get(pairs, "phase", "*"), arguments, call.by)
        return translate("Done: {act}", act=act.name), ""
    if isinstance(arguments, AnnotateArguments) and MASK in _get(pairs, "a.metadata"):
        raise BadInput(
            f"the metadata has masked secrets ({MASK})", fix="type each again, or remove it", field="metadata"
        )
    selection = _selected(call.queue, act, pairs)
    count = _confirmed(pairs, selection.count)
    if count > TYPED_ABOVE and _get(pairs, "typed").replace(",", "") != str(count):
        raise BadInput("the number typed is not the number of tasks", fix="type the number shown here", field="typed")
    if not count:
        raise BadInput("no task matches", fix="change the query", field="q")
    pace = _get(pairs, "pace").strip() or None
    act.check(call.queue, arguments, pace)
    ids = [value for key, value in pairs if key == "id"] or None
    on = chosen(ids, _get(pairs, "q"))
    if pace is None and (count == 1 or ids):
        done = act.run(call.queue, selection, arguments, call.by, on, limit=count)
        if done.refused and not done.done:
            _, reason = done.problems[0]
            raise BadInput(reason, field="id")
        if done.refused:
            return translate("{act}: {n} done, {refused} refused", act=act.name, n=done.done, refused=done.refused), ""
        return translate("Done: {act}", act=act.name), ""
    # Many tasks take a while: the act runs in a thread, and the page of operations shows its progress.
    call.site.background.start(
        f"{act.name} by {call.by}",
        lambda: act.run(call.queue, selection, arguments, call.by, on, pace=pace, limit=count),
    )
    return translate("{act} of {n} tasks has begun", act=act.name, n=f"{count:,}"), "operations"


def _confirmed(pairs: Sequence[tuple[str, str]], matching: int) -> int:
    """Return the number of tasks that the dialog showed: while people read it, more may come to match."""
    shown = _get(pairs, "count")
    return int(shown) if shown.isdecimal() else matching


# ── the fields of a dialog ──


def field_of(field: msgspec.structs.FieldInfo, pairs: Sequence[tuple[str, str]]) -> Field:
    """Return the field of the dialog for one argument of an act."""
    kind, hint = _kind(field)
    given = _get(pairs, f"a.{field.name}", "")
    required = field.required
    options: Sequence[str] = ()
    if field.name == "error_class":
        kind, options, given = "choice", ERROR_CLASSES, given or "permanent"
    label = field.name.replace("_", " ").capitalize()
    return Field(field.name, label, kind, given, hint, required, options)


def _kind(field: msgspec.structs.FieldInfo) -> tuple[str, str]:
    hint = ""
    known = field.type
    if get_origin(known) is typing.Annotated:
        known, *metas = get_args(known)
        hint = next((meta.description or "" for meta in metas if isinstance(meta, msgspec.Meta)), "")
    if get_origin(known) in (types.UnionType, typing.Union):
        return ("limit" if field.default == UNCHANGED else "text"), hint
    if known is bool:
        return "bool", hint
    if known is int:
        return "int", hint
    return ("text" if known is str else "json"), hint


def _arguments(act: TaskAct | ControlAct, pairs: Sequence[tuple[str, str]]) -> Arguments:
    """Return the arguments that the dialog sent; raise BadInput for a value that the act does not accept."""
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(act.arguments):
        kind, _ = _kind(field)
        text = _get(pairs, f"a.{field.name}").strip()
        if kind == "bool":
            given[field.name] = bool(text)
        elif not text and not field.required:
            continue
        elif kind == "limit":
            number = field.name in ("concurrency", "per_key")
            given[field.name] = None if text == "none" else _whole(text, field.name) if number else text
        elif kind == "int":
            given[field.name] = _whole(text, field.name)
        elif kind == "json":
            given[field.name] = read_json(text, field.name, field.name)
        else:
            given[field.name] = text
    try:
        return msgspec.convert(given, act.arguments)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), field="arguments") from None


def _whole(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{name} is a whole number, not {text!r}", fix="or 'none' for no limit", field=name) from None


def _shown_arguments(act: TaskAct | ControlAct, pairs: Sequence[tuple[str, str]]) -> Any:
    """Return the arguments for the command line that the dialog shows; upper-case names stand for those still missing."""
    try:
        return _arguments(act, pairs)
    except OnerowError:
        missing = {
            field.name: 0 if _kind(field)[0] == "int" else {} if _kind(field)[0] == "json" else field.name.upper()
            for field in msgspec.structs.fields(act.arguments)
            if field.required
        }
        return msgspec.convert(missing, act.arguments)


def _schedule(call: Call, pairs: Sequence[tuple[str, str]]) -> Any:
    wanted = _get(pairs, "pipeline"), _get(pairs, "phase").removeprefix("cron:")
    for each in call.views.schedules():
        if (each.pipeline, each.cron.name) == wanted:
            return each.cron
    raise UnknownName(f"no schedule {wanted[1]!r} of {wanted[0]!r}", field="phase")


def _schedule_line(call: Call, pairs: Sequence[tuple[str, str]]) -> tuple[str, str]:
    import shlex

    cron, pipeline = _schedule(call, pairs), _get(pairs, "pipeline")
    words = ["onerow", "add", pipeline, "--payload", msgspec.json.encode(cron.payload).decode()]
    if cron.user_id:
        words += ["--user", cron.user_id]
    return shlex.join(words), f"{pipeline} · {cron.name}"
