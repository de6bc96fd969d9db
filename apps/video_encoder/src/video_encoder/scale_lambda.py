"""The queue-depth Lambda function: the depths of three queues, and the scaling of the encoders as `video_scale_result`.

Its settings are the ENCODER_… variables, those of onerow's own handler (ONEROW_SCALE_…), VIDEO_SCALE_VISIBLE_ONLY, and the
URLs of the other queues, AI_QUEUE_URL and MESSAGING_QUEUE_URL.
"""

import logging
import os
from collections.abc import Mapping
from typing import Any

from onerow import BadInput, OnerowError
from onerow.scaling import aws_lambda
from onerow.scaling.targets import sqs_client, sqs_counts
from video_encoder.opening import videos

log = logging.getLogger("video_encoder.scaling")

_QUEUES = {
    "ai_queue_depth": "AI_QUEUE_URL",
    "messaging_queue_depth": "MESSAGING_QUEUE_URL",
    "video_queue_depth": "ENCODER_QUEUE_URL",
}


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """Return the depths of the queues, and beside them what was decided about the encoders.

    If one of them fails, the others are answered: a depth is None, or `video_scale_result` has the key `error`.
    """
    return {**depths(os.environ), "video_scale_result": scale(os.environ)}


def depths(environment: Mapping[str, str]) -> dict[str, int | None]:
    """Return the visible messages of each queue; 0 for one without a URL, None for one that can't be read."""
    return {name: _depth(name, environment.get(variable)) for name, variable in _QUEUES.items()}


def _depth(name: str, url: str | None) -> int | None:
    if not url:
        return 0
    client = sqs_client(url)
    try:
        return sqs_counts(url, client)[0]
    except OnerowError as error:
        log.error("%s: %s", name, error)
        return None
    finally:
        client.close()


def scale(environment: Mapping[str, str]) -> dict[str, Any]:
    """Decide how many encoders there should be, and set the target to that number; `error` if that is impossible now."""
    own = {
        "ONEROW_STORE": environment.get("ENCODER_STORE", ""),
        "ONEROW_SCALE_SQS": environment.get("ENCODER_QUEUE_URL", ""),
        "ONEROW_SCALE_PHASES": videos.name,
        "ONEROW_SCALE_SLOTS": "1",
        "ONEROW_SCALE_MODE": "inflight",
    }
    settings = {**own, **environment}
    try:
        if not settings["ONEROW_STORE"]:
            raise BadInput("ENCODER_STORE is not set", fix="export ENCODER_STORE=…", field="ENCODER_STORE")
        result: dict[str, Any] = aws_lambda.scale(settings)["video_scale_result"]
    except OnerowError as error:
        log.error("the encoders are not scaled: %s", error)
        return {"error": str(error)}
    return result
