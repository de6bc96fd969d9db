"""What the messages of the SQS queue ask for: a video by its id, or an upload by the bucket's own event."""

from typing import Any

from onerow import BadInput
from onerow.core.messages import decode_object, read_request
from onerow.inboxes import Addition, AddTasks, BadMessage, Message, Request, SqsInbox, read_s3_event
from video_encoder.bucket import RAW
from video_encoder.opening import checked_id, videos
from video_encoder.settings import Settings
from video_encoder.uploads import job_of_key

LOG_NAMES = {
    "received": "SQS_MESSAGE_RECEIVED",
    "found_completed": "VIDEO_ALREADY_READY_SKIP",
    "completed": "SQS_JOB_COMPLETED",
}


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
        log_names=LOG_NAMES,
    )


def read_message(message: Message) -> Request:
    """Read {"video_id": …}, optionally with "cancel": true; {"task_id": …}; or an event of the bucket.

    A new object below raw/ becomes a row, with the id in its key. Other events (also those of the objects that the
    encoder writes and deletes) are acknowledged and add nothing.
    """
    body = decode_object(message.body)
    if "Records" in body or "Event" in body or body.get("Type") == "Notification":
        found = read_s3_event(message)
        return AddTasks(
            videos.name, tuple(_added(each.payload) for each in found.additions if _is_upload(each.payload))
        )
    if "video_id" in body:
        given = body.pop("video_id")
        body["task_id"] = str(given) if isinstance(given, int | str) and not isinstance(given, bool) else ""
    if "task_id" not in body:
        raise BadMessage('names no video; write {"video_id": …}', field="video_id")
    return read_request(body, videos.name, message.message_id)


def _is_upload(event: Any) -> bool:
    return str(event["event"]).startswith("ObjectCreated") and str(event["key"]).startswith(RAW)


def _added(event: Any) -> Addition:
    try:
        video_id, job = job_of_key(event["key"])
        return Addition({"key": job.key, "name": job.name}, task_id=checked_id(video_id))
    except BadInput as error:
        raise BadMessage(str(error), field="key") from None
