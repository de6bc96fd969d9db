"""Sends the message that names an uploaded video. The row is stored before: a lost message only delays the work."""

import json
import logging
import re
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from video_encoder.settings import Settings

_log = logging.getLogger("video_encoder")
_AWS = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")


def send_message(video_id: str) -> None:
    """Send {"task_id": …} to ENCODER_QUEUE_URL; if SQS does not take it, say so in the log."""
    url = Settings.of_environment().queue_url
    fifo = {"MessageGroupId": video_id, "MessageDeduplicationId": video_id} if url.endswith(".fifo") else {}
    try:
        _client(url).send_message(QueueUrl=url, MessageBody=json.dumps({"task_id": video_id}), **fifo)
    except (BotoCoreError, ClientError) as error:
        _log.warning("video %s: no message was sent, workers find its row: %s", video_id, error)


@lru_cache(maxsize=8)
def _client(queue_url: str) -> Any:
    host = urlsplit(queue_url)
    found = _AWS.fullmatch(host.hostname or "")
    return boto3.session.Session().client(
        "sqs",
        region_name=found[1] if found else None,
        endpoint_url=None if found else f"{host.scheme}://{host.netloc}",
        config=Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3}),
    )
