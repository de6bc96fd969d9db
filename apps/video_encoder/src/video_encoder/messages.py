"""What the messages of the SQS queue ask for: a video by its id, or an upload by the bucket's own event."""

import logging
from typing import Any
from urllib.parse import unquote_plus

import msgspec

from onerow import BadInput
from onerow.core.messages import decode_object, read_request
from onerow.inboxes import Addition, AddTasks, BadMessage, Message, Request, SqsInbox
from video_encoder.bucket import RAW
from video_encoder.opening import checked_id, videos
from video_encoder.settings import Settings
from video_encoder.uploads import job_of_key

_log = logging.getLogger("video_encoder")


class _Object(msgspec.Struct):
    key: str


class _Entity(msgspec.Struct):
    object: _Object


class _Record(msgspec.Struct, rename="camel"):
    """One object in an event notification of S3."""

    event_name: str
    s3: _Entity


def open_inbox(settings: Settings | None = None) -> SqsInbox:
    """Return the inbox at ENCODER_QUEUE_URL, in the mode of ENCODER_MODE."""
    settings = settings or Settings.of_environment()
    settings.needed("queue_url", "bucket")
    return SqsInbox(
        settings.queue_url,
        pipeline=videos.name,
        mode=settings.mode,
        visibility=settings.visibility,
        read=read_message,
    )


def read_message(message: Message) -> Request:
    """Read {"video_id": …}, optionally with "cancel": true; {"task_id": …}; or an event of the bucket."""
    fields = {"event": "SQS_MESSAGE_RECEIVED", "message_id": message.message_id, "deliveries": message.deliveries}
    _log.info("SQS_MESSAGE_RECEIVED: message %s", message.message_id, extra=fields)
    body = decode_object(message.body)
    if body.get("Type") == "Notification" and isinstance(body.get("Message"), str):
        body = decode_object(body["Message"])  # through SNS
    if body.get("Event") == "s3:TestEvent":  # sent once, when the bucket's events are set up
        return AddTasks(videos.name, ())
    if "Records" in body:
        return _read_event(body["Records"])
    if "video_id" in body:
        given = body.pop("video_id")
        body["task_id"] = str(given) if isinstance(given, int | str) and not isinstance(given, bool) else ""
    if "task_id" not in body:
        raise BadMessage('names no video; write {"video_id": …}', field="video_id")
    return read_request(body, videos.name, message.message_id)


def _read_event(found: Any) -> AddTasks:
    """Return a row for each new object below raw/, with the id in its key.

    Other events (also those of the objects that the encoder writes and deletes) ask for nothing.
    """
    try:
        records = msgspec.convert(found, list[_Record])
    except msgspec.ValidationError as error:
        raise BadMessage(f"not an event notification of S3: {error}", field="body") from None
    keys = [unquote_plus(record.s3.object.key) for record in records if record.event_name.startswith("ObjectCreated")]
    return AddTasks(videos.name, tuple(_addition(key) for key in keys if key.startswith(RAW)))


def _addition(key: str) -> Addition:
    try:
        video_id, job = job_of_key(key)
        return Addition({"key": job.key, "name": job.name}, task_id=checked_id(video_id))
    except BadInput as error:
        raise BadMessage(str(error), field="key") from None
