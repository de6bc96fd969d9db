"""The queue-depth Lambda function: the depths of three queues, and the scaling of the encoders as `video_scale_result`.

Its settings are the ENCODER_… variables, those of onerow's own handler (ONEROW_SCALE_…), VIDEO_SCALE_VISIBLE_ONLY, and the
URLs of the other queues, AI_QUEUE_URL and MESSAGING_QUEUE_URL.
"""

import os
from collections.abc import Mapping
from typing import Any

from onerow.scaling import aws_lambda
from onerow.scaling.aws_client import AwsClient
from onerow.scaling.targets import sqs_counts
from video_encoder.opening import videos

_QUEUES = {
    "ai_queue_depth": "AI_QUEUE_URL",
    "messaging_queue_depth": "MESSAGING_QUEUE_URL",
    "video_queue_depth": "ENCODER_QUEUE_URL",
}


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """Return the depths of the queues, and beside them what was decided about the encoders."""
    return {**depths(os.environ), "video_scale_result": scale(os.environ)["video_scale_result"]}


def depths(environment: Mapping[str, str]) -> dict[str, int]:
    """Return the visible messages of each queue; 0 for one without a URL."""
    client = AwsClient("sqs", endpoint_url=environment.get("AWS_ENDPOINT_URL_SQS"))
    urls = {name: environment.get(variable) for name, variable in _QUEUES.items()}
    try:
        return {name: sqs_counts(url, client)[0] if url else 0 for name, url in urls.items()}
    finally:
        client.close()


def scale(environment: Mapping[str, str]) -> dict[str, Any]:
    """Decide how many encoders there should be, and set the target to that number."""
    own = {
        "ONEROW_STORE": environment.get("ENCODER_STORE", ""),
        "ONEROW_SCALE_SQS": environment.get("ENCODER_QUEUE_URL", ""),
        "ONEROW_SCALE_PHASES": videos.name,
        "ONEROW_SCALE_SLOTS": "1",
        "ONEROW_SCALE_MODE": "inflight",
    }
    return aws_lambda.scale({**own, **environment})
