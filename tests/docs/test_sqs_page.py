"""The code of docs/how-to/sqs.md runs against moto, and a worker of it receives a message."""

import json
import re
from pathlib import Path
from typing import Any

import boto3
import pytest

from onerow.core.message_outcomes import Outcome
from tests.engine.kit import until, working

PAGE = (Path(__file__).parents[2] / "docs/how-to/sqs.md").read_text(encoding="utf-8")
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_JSON = re.compile(r"^```json\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("sqs_queues")
def test_a_worker_of_the_page_receives_a_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "onerow.toml").write_text("")
    client = boto3.client("sqs")
    names: dict[str, Any] = {"__name__": "page", "__file__": str(tmp_path / "app.py")}
    for block in _PYTHON.findall(PAGE):
        exec(block.replace(', isolate="process"', ""), names)
    queue = names["queue"]
    (waiting,) = client.receive_message(QueueUrl=names["notifier"]._queue_url, VisibilityTimeout=0)["Messages"]
    assert json.loads(waiting["Body"]) == {"task_id": queue.find().tasks[0].task_id}
    with working(queue, names["videos"]):
        until(lambda: [task for task in queue.find().tasks if task.ended], "the task")
        until(lambda: "Messages" not in client.receive_message(QueueUrl=names["notifier"]._queue_url), "the delete")
    (task,) = queue.find().tasks
    assert task.results == {"encode": "b.mp4.m3u8"}
    queue.close()


def test_the_policy_is_json_and_every_outcome_is_described() -> None:
    (policy,) = _JSON.findall(PAGE)
    assert json.loads(policy)["Version"] == "2012-10-17"
    for outcome in Outcome:
        assert f"| `{outcome}` |" in PAGE
