"""A Lambda function that scales a group of workers, run by a schedule of EventBridge: handler onerow.scaling.aws_lambda.handler.

Its settings are environment variables (see `VARIABLES`). Its answer has the decision, and beside it the fields of a
queue-depth function as NAME_scale_result.
"""

import logging
import os
from collections.abc import Mapping
from typing import Any

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput
from onerow.core.scaling import Decision, ScaleSettings
from onerow.scaling.scaler import Scaler
from onerow.scaling.targets import open_target, sqs_client, sqs_counts
from onerow.wiring import Queue

log = logging.getLogger("onerow.scaling")

VARIABLES = {
    "ONEROW_STORE": "the URL of the store",
    "ONEROW_SCALE_TARGET": "what is scaled: asg:GROUP or ecs:CLUSTER/SERVICE",
    "ONEROW_SCALE_PREFIX": "the first part of the answer's fields; default: video",
    "ONEROW_SCALE_PHASES": "pipelines or pipeline.phase that its workers serve, with commas; default: all",
    "ONEROW_SCALE_SLOTS": "concurrent tasks of one worker; default: 16",
    "ONEROW_SCALE_MIN": "least workers; default: 0",
    "ONEROW_SCALE_MAX": "most workers; default: 8",
    "ONEROW_SCALE_WARM_POOL": "workers beyond the need; default: 0",
    "ONEROW_SCALE_TARGET_WAIT": "how long a ready task may wait, like 30s",
    "ONEROW_SCALE_IN_AFTER": "how long a surplus must last; default: 10m",
    "ONEROW_SCALE_MODE": "leases (default), inflight or visible",
    "ONEROW_SCALE_SQS": "the URL of a queue whose messages count too",
}
"""Every environment variable of the handler, and its meaning. PREFIX_SCALE_VISIBLE_ONLY=1 is the mode `visible`."""


def handler(event: Any, context: Any) -> dict[str, Any]:
    """Decide and apply; return the decision."""
    return scale(os.environ)


def scale(environment: Mapping[str, str]) -> dict[str, Any]:
    """Do one round with the settings of an environment; return the answer of the handler."""
    prefix = environment.get("ONEROW_SCALE_PREFIX") or "video"
    if not (target := environment.get("ONEROW_SCALE_TARGET")):
        raise BadInput(
            "ONEROW_SCALE_TARGET is not set", fix="set it to asg:GROUP or ecs:CLUSTER/SERVICE", field="target"
        )
    messages, sqs = None, environment.get("ONEROW_SCALE_SQS")
    if sqs:
        client = sqs_client(sqs)
        messages = lambda: sqs_counts(sqs, client)  # noqa: E731
    queue = Queue(environment["ONEROW_STORE"]) if environment.get("ONEROW_STORE") else Queue()
    try:
        scope = [name.strip() for name in environment.get("ONEROW_SCALE_PHASES", "").split(",") if name.strip()]
        scaler = Scaler(
            queue, settings_of(environment, prefix), scope=scope, target=open_target(target), messages=messages
        )
        decision = scaler.decide()
        changed = scaler.apply(decision)
    finally:
        queue.close()
    log.info("%s: %s", decision.decision, decision.why)
    answer = {"target": target, "changed": changed, "why": decision.why}
    return with_scale_result(answer, decision, prefix)


def with_scale_result(answer: Mapping[str, Any], decision: Decision, prefix: str = "video") -> dict[str, Any]:
    """Return an answer with the decision's fields as `video_scale_result` beside its other keys."""
    return {**answer, f"{prefix}_scale_result": decision.fields(prefix)}


def settings_of(environment: Mapping[str, str], prefix: str) -> ScaleSettings:
    """Return the settings of an environment; raise BadInput that names the wrong variable."""

    def number(name: str, default: int) -> int:
        text = environment.get(name) or str(default)
        try:
            return int(text)
        except ValueError:
            raise BadInput(f"{name} is {text!r}, not a whole number", field=name) from None

    wait, after = environment.get("ONEROW_SCALE_TARGET_WAIT"), environment.get("ONEROW_SCALE_IN_AFTER") or "10m"
    mode: Any = environment.get("ONEROW_SCALE_MODE") or "leases"
    if environment.get(f"{prefix.upper()}_SCALE_VISIBLE_ONLY") == "1":
        mode = "visible"
    if mode not in ("leases", "inflight", "visible"):
        raise BadInput(f"ONEROW_SCALE_MODE is {mode!r}", fix="write leases, inflight or visible", field="mode")
    return ScaleSettings(
        slots=number("ONEROW_SCALE_SLOTS", 16),
        minimum=number("ONEROW_SCALE_MIN", 0),
        maximum=number("ONEROW_SCALE_MAX", 8),
        warm_pool=number("ONEROW_SCALE_WARM_POOL", 0),
        target_wait=parse_duration(wait, "ONEROW_SCALE_TARGET_WAIT").total_seconds() if wait else None,
        scale_in_after=parse_duration(after, "ONEROW_SCALE_IN_AFTER").total_seconds(),
        mode=mode,
    )
