"""Acts on phases, pipelines, schedules, workers and operations."""

from typing import Any

from msgspec import Struct

from onerow.web.acts import CONTROL_ACTS, NAMED_ACTS, Arguments, ControlAct, NamedAct
from onerow.web.api.operation import operation
from onerow.web.routing import Call, Endpoint


class Changed(Struct, frozen=True):
    """changed: false if it was so already. command: the command line that does the same."""

    changed: bool
    command: str


def _route(act: ControlAct, path: str, what: str, phase_of: Any) -> Endpoint:
    @operation(
        "POST", f"{path}/{act.name}", act.role, "phases", f"{act.name.title()} {what}.",
        request=act.arguments, answers={200: Changed}, all_users=True,
    )  # fmt: skip
    def run(call: Call, arguments: Any, query: Any) -> Changed:
        pipeline, phase = call.path["pipeline"], phase_of(call.path)
        changed = act.run(call.queue, pipeline, phase, arguments, call.by)
        return Changed(changed, act.command(pipeline, phase, arguments))

    return run


class Asked(Struct, frozen=True):
    """command: the command line that does the same. GET /workers and GET /operations show when it has happened."""

    command: str


def _named_route(act: NamedAct, path: str, tag: str) -> Endpoint:
    @operation(
        "POST", f"{path}/{{name}}/{act.name}", act.role, tag, act.summary,
        request=Arguments, answers={202: Asked}, all_users=True,
    )  # fmt: skip
    def run(call: Call, arguments: Arguments, query: Any) -> Asked:
        act.run(call.queue, call.path["name"], call.by)
        return Asked(act.command(call.path["name"]))

    return run


def phase_routes() -> list[Endpoint]:
    pauses = [CONTROL_ACTS["pause"], CONTROL_ACTS["resume"]]
    return [
        *(_route(act, "/pipelines/{pipeline}", "a pipeline", lambda path: "*") for act in pauses),
        *(
            _route(act, "/pipelines/{pipeline}/schedules/{name}", "a schedule", lambda path: f"cron:{path['name']}")
            for act in pauses
        ),
        *(
            _route(act, "/pipelines/{pipeline}/phases/{phase}", "a phase", lambda path: path["phase"])
            for act in CONTROL_ACTS.values()
        ),
        _named_route(NAMED_ACTS["drain"], "/workers", "figures"),
        _named_route(NAMED_ACTS["stop"], "/operations", "acts"),
    ]
