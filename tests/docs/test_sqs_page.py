"""The code of docs/how-to/sqs.md runs against moto, and a worker of it receives a message."""

import json
import re
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.engine.kit import until, working

PAGE = (Path(__file__).parents[2] / "docs/how-to/sqs.md").read_text(encoding="utf-8")
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_JSON = re.compile(r"^```json\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("sqs_queues")
def test_a_worker_of_the_page_receives_a_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "onerow.toml").write_text('store = "sqlite:///studio.db"\n')
    client = boto3.client("sqs")
    names: dict[str, Any] = {"__name__": "page", "__file__": str(tmp_path / "app.py")}
    for block in _PYTHON.findall(PAGE):
        if "5001" in block:
            continue  # test_blocks.py runs it
        exec(block.replace(', isolate="process"', ""), names)
    queue = names["queue"]
    url = client.get_queue_url(QueueName="videos")["QueueUrl"]
    (waiting,) = client.receive_message(QueueUrl=url, VisibilityTimeout=0)["Messages"]
    assert json.loads(waiting["Body"]) == {"task_id": queue.find().tasks[0].task_id}
    uploads = client.get_queue_url(QueueName="uploads")["QueueUrl"]
    event = {"Records": [{"s3": {"object": {"key": "raw/a+b%C3%A9.mp4", "sequencer": "0055AED6"}}}]}
    for body in ({"Event": "s3:TestEvent"}, event, event):
        client.send_message(QueueUrl=uploads, MessageBody=json.dumps(body))
    queue.receive(names["uploads"])
    with working(queue, names["videos"]):
        until(lambda: len([task for task in queue.find().tasks if task.ended]) == 2, "the tasks")
        for each in (url, uploads):
            until(lambda: "Messages" not in client.receive_message(QueueUrl=each), "the delete")  # noqa: B023
    assert {task.result for task in queue.find().tasks} == {"b.mp4.m3u8", "raw/a bé.mp4.m3u8"}
    queue.close()


def test_the_policy_is_json() -> None:
    (policy,) = _JSON.findall(PAGE)
    assert json.loads(policy)["Version"] == "2012-10-17"
