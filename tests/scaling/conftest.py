"""A store in a file, and AWS as moto answers it over HTTP."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onerow import Pipeline, Queue
from onerow.ports import Claim, PhaseClaim
from onerow.stores.sqlite import SqliteStore


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """A queue with one published pipeline, `clips`, and its phase `video`."""
    opened = Queue(SqliteStore(tmp_path / "onerow.db"))
    clips = Pipeline("clips")

    @clips.phase
    def video(job: dict[str, Any]) -> None: ...

    opened.publish(clips)
    yield opened
    opened.close()


def lease(queue: Queue, count: int, worker: str = "w1") -> None:
    """Claim tasks, as a worker does."""
    want = PhaseClaim(pipeline="clips", phase="video", limit=count, lease_for=timedelta(minutes=5))
    assert len(queue.store.claim(Claim(worker, [want]))) == count


@pytest.fixture
def aws(sqs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty AWS, to which boto3's own settings point."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", sqs_endpoint)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    return sqs_endpoint
