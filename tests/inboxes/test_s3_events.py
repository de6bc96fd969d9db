"""Event notifications of S3 become tasks, one per object."""

import json
from typing import Any

import pytest

from onerow.core.messages import BadMessage, Message
from onerow.inboxes.s3_events import read_s3_event


def record(key: str = "raw/a+b%C3%A9.mp4", **fields: Any) -> dict[str, Any]:
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-central-1",
        "eventTime": "2026-11-16T03:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {
            "bucket": {"name": "videos", "arn": "arn:aws:s3:::videos"},
            "object": {"key": key, "size": 1024, "eTag": "e", "versionId": "v1", "sequencer": "0055AED6DCD90281E5"}
            | fields,
        },
    }


def message(body: object) -> Message:
    return Message("m1", json.dumps(body))


def test_each_object_becomes_a_task() -> None:
    request = read_s3_event(message({"Records": [record(), record("raw/c.mp4")]}))
    first, second = request.additions
    assert first.payload == {
        "event": "ObjectCreated:Put",
        "bucket": "videos",
        "key": "raw/a bé.mp4",
        "size": 1024,
        "etag": "e",
        "version": "v1",
        "sequencer": "0055AED6DCD90281E5",
        "time": "2026-11-16T03:00:00.000Z",
        "region": "eu-central-1",
    }
    assert second.payload["key"] == "raw/c.mp4"
    assert first.task_id != second.task_id


def test_a_repeated_notification_has_the_same_ids_and_a_new_version_has_others() -> None:
    first = read_s3_event(message({"Records": [record()]})).additions[0]
    again = read_s3_event(Message("m2", json.dumps({"Records": [record()]}))).additions[0]
    later = read_s3_event(message({"Records": [record(sequencer="0055AED6DCD90281E6")]})).additions[0]
    assert first.task_id == again.task_id != later.task_id


def test_a_notification_through_sns_is_read_too() -> None:
    wrapped = {"Type": "Notification", "Message": json.dumps({"Records": [record()]})}
    direct = read_s3_event(message({"Records": [record()]}))
    assert read_s3_event(message(wrapped)) == direct


def test_the_test_event_asks_for_nothing() -> None:
    assert read_s3_event(message({"Service": "Amazon S3", "Event": "s3:TestEvent"})).additions == ()


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"Records": 3},
        {"Records": [{}]},
        {"Records": [record() | {"eventSource": "aws:ses"}]},
        {"Records": [record() | {"s3": {"bucket": {"name": "b"}, "object": {}}}]},
        {"Type": "Notification", "Message": "hello"},
    ],
)
def test_other_messages_are_bad(body: object) -> None:
    with pytest.raises(BadMessage):
        read_s3_event(message(body))
