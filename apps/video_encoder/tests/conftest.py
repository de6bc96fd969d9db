"""Fixtures: an encoder per test, with a bucket and queues on moto, small clips and quick retries.

What several tests look at is run once, in a fixture of their module; such a module is one group of pytest-xdist.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.video_encoder.tests.kit import Cloud, environment
from onerow import Queue
from video_encoder import open_queue
from video_encoder.offline import clips


@pytest.fixture
def home(tmp_path: Path, sqs_endpoint: str) -> Iterator[Path]:
    """The folder of an encoder whose variables are set; its name is not plain ASCII."""
    with environment(tmp_path, sqs_endpoint) as folder:
        yield folder


@pytest.fixture
def queue(home: Path) -> Iterator[Queue]:
    opened = open_queue()
    yield opened
    opened.close()


@pytest.fixture
def aws(home: Path) -> Iterator[Cloud]:
    """The bucket and the queues, as seen from outside."""
    seen = Cloud(os.environ["AWS_ENDPOINT_URL"], os.environ["ENCODER_QUEUE_URL"])
    yield seen
    seen.close()


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds with sound."""
    return clips.draw(tmp_path_factory.mktemp("clips") / "시험 방송.mp4")


@pytest.fixture(scope="session")
def long_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip that takes a second or more to encode, to be killed in the midst."""
    folder = tmp_path_factory.mktemp("clips")
    return clips.draw(folder / "long.mp4", seconds=20, size="320x180", rate=25, sound=False)
