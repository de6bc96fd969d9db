"""Read event notifications of S3 from a queue: one task per object."""

from typing import Any
from urllib.parse import unquote_plus

import msgspec

from onerow.core.addition import Addition
from onerow.core.messages import AddTasks, BadMessage, Message, decode_object, derived_id


class _Bucket(msgspec.Struct):
    name: str


class _Object(msgspec.Struct, rename="camel"):
    key: str
    size: int | None = None
    e_tag: str = ""
    version_id: str = ""
    sequencer: str = ""


class _Entity(msgspec.Struct):
    bucket: _Bucket
    object: _Object


class _Record(msgspec.Struct, rename="camel"):
    event_source: str
    event_name: str
    s3: _Entity
    event_time: str = ""
    aws_region: str = ""


def read_s3_event(message: Message) -> AddTasks:
    """Read an event notification of S3, sent directly or through SNS: `SqsInbox(url, pipeline=…, read=read_s3_event)`.

    Each object becomes one task; its id is derived from bucket, key, version and sequencer, so that a repeated
    notification adds nothing. The payload has event, bucket, key, size, etag, version, sequencer, time and region. The
    message s3:TestEvent, which S3 sends once when notifications are set up, is acknowledged and adds nothing. message:
    as the inbox received it.
    """
    body = decode_object(message.body)
    if body.get("Type") == "Notification" and isinstance(body.get("Message"), str):
        body = decode_object(body["Message"])
    if body.get("Event") == "s3:TestEvent":
        return AddTasks("", ())
    try:
        records = msgspec.convert(body.get("Records"), list[_Record])
    except msgspec.ValidationError as error:
        raise BadMessage(f"not an event notification of S3: {error}", field="body") from None
    return AddTasks("", tuple(_addition(record) for record in records))


def _addition(record: _Record) -> Addition:
    if not record.event_source.endswith(":s3"):
        raise BadMessage(f"an event of {record.event_source!r}, not of S3", field="eventSource")
    bucket, found = record.s3.bucket.name, record.s3.object
    key = unquote_plus(found.key)
    payload: dict[str, Any] = {
        "event": record.event_name,
        "bucket": bucket,
        "key": key,
        "size": found.size,
        "etag": found.e_tag,
        "version": found.version_id,
        "sequencer": found.sequencer,
        "time": record.event_time,
        "region": record.aws_region,
    }
    # Some services that imitate S3 send no sequencer.
    order = found.sequencer or f"{record.event_name} {record.event_time} {found.e_tag}"
    return Addition(payload, task_id=derived_id("s3", bucket, key, found.version_id, order))
