"""The form for a new task: one field for each field of the payload's type, or JSON."""

import shlex
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from onerow.core.errors import BadInput, OnerowError
from onerow.core.times import parse_moment
from onerow.engine.views import FormField, PayloadForm
from onerow.web.acts import audit
from onerow.web.problems import Problem, problem_of
from onerow.web.routing import Call

_PREFIX = "p."


def read_form(call: Call, given: dict[str, str], problem: Problem | None) -> dict[str, Any]:
    """Return the values of the form: pipelines, fields, a sample payload, and what was typed before."""
    plans, asked = call.views.plans(), call.request.query_params
    pipeline = given.get("pipeline") or asked.get("pipeline", "")
    payload: Any = None
    masked = False
    if like := asked.get("like", ""):
        copied = call.views.task(like).task
        pipeline, payload = copied["pipeline"], copied["payload"]
        masked = payload != call.queue.get(like).payload
    if pipeline not in plans:
        pipeline = next(iter(sorted(plans)), "")
    form = call.views.payload_form(pipeline) if pipeline else None
    if payload is None:
        payload = _sample(form.fields) if form is not None and form.typed else {}
    raw = asked.get("raw") == "1" or (bool(given) and not given.get("typed")) or not _fits(form, payload)
    sample = msgspec.json.encode(payload).decode()
    return {
        "names": sorted(plans), "pipeline": pipeline, "form": form, "typed": form is not None and form.typed, "raw": raw,
        "sample": sample, "given": given, "problem": problem, "masked": masked,
        "code": f"queue.add({pipeline!r}, {payload!r})",
        "command": shlex.join(["onerow", "add", pipeline, "--payload", sample]),
        "samples": {name: _text(value) for name, value in payload.items()} if isinstance(payload, dict) else {},
    }  # fmt: skip


def _fits(form: PayloadForm | None, payload: Any) -> bool:
    """Whether the form has a field for everything in the payload."""
    return form is not None and isinstance(payload, dict) and payload.keys() <= {each.name for each in form.fields}


def _sample(fields: list[FormField]) -> dict[str, Any]:
    """Return a payload with the defaults and an empty value for each other required field."""
    empty: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
    found = {}
    for field in fields:
        if field.has_default:
            found[field.name] = field.default
        elif field.required:
            found[field.name] = field.enum[0] if field.enum else empty.get(field.type)
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def add(call: Call) -> tuple[Response | None, Problem | None]:
    """Add the task of the posted form; return the redirect to it, or the problem."""
    form = {
        key: value.replace("\r\n", "\n") if key.startswith(_PREFIX) else value.strip()
        for key, value in call.form.items()
    }
    pipeline = form.get("pipeline", "")
    try:
        options: dict[str, Any] = {}
        if form.get("priority"):
            options["priority"] = _whole(form["priority"])
        if form.get("run_at"):
            options["run_at"] = parse_moment(form["run_at"], call.queue.store.now(), "run_at")
        for name in ("limit_key", "unique", "user_id"):
            if form.get(name):
                options[name] = form[name]
        if form.get("typed"):
            payload: Any = _typed(form, call.views.payload_form(pipeline).fields)
        else:
            payload = read_json(form.get("payload") or "null", "the payload")
        if problems := call.views.check_payload(pipeline, payload):
            raise BadInput(
                "; ".join(f"{each.field}: {each.message}".removeprefix(": ") for each in problems), field="payload"
            )
        task = call.queue.add(pipeline, payload, **options)
        audit(call.by, f"onerow add {pipeline}: added {task.task_id}")
    except OnerowError as error:
        return None, problem_of(error)
    return call.redirect(f"task?{urlencode({'id': task.task_id})}"), None


def _typed(form: dict[str, str], fields: list[FormField]) -> dict[str, Any]:
    """Return the payload of the fields; a field that was left empty is left out, unless it is a required text."""
    payload: dict[str, Any] = {}
    for field in fields:
        text = form.get(_PREFIX + field.name, "")
        if field.type == "boolean":
            payload[field.name] = text == "true"
        elif field.enum:
            if text:
                payload[field.name] = next(each for each in [*field.enum, text] if _text(each) == text)
        elif field.type == "string":
            if text or (field.required and not field.nullable):
                payload[field.name] = text
        elif text.strip():
            payload[field.name] = read_json(text, field.name)
    return payload


def read_json(text: str, name: str, field: str = "payload") -> Any:
    """Return the value of a field that holds JSON; name: of the field, for the error."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{name} is not JSON: {error}", fix='write text in quotes: "text"', field=field) from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"priority is a whole number from -100 to 100, not {text!r}", field="priority") from None
