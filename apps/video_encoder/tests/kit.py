"""Helpers for tests: the cloud seen from outside, and real worker processes that are always cleaned up."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import boto3
import psutil
import pytest

from onerow import Queue, Task, Worker
from onerow.engine.receiving.reception import Reception
from tests.marked_processes import kill_all, living
from tests.servers.sqs import SqsServer
from video_encoder import open_queue
from video_encoder.messages import open_inbox
from video_encoder.offline import cloud
from video_encoder.results import Results
from video_encoder.settings import Settings
from video_encoder.status import VideoStatus, status_of

PATIENCE = 900.0
T = TypeVar("T")


def until(look: Callable[[], T], what: str = "it") -> T:
    """Call `look` until it returns a true value; return that value."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come in {PATIENCE:.0f} s; the last look found {found!r}")
        time.sleep(0.02)
    return found


def becomes(video_id: str, status: VideoStatus) -> Task:
    """Wait until a video has a status; return its task."""
    until(lambda: status_of(open_queue().get(video_id)) is status, f"{video_id} {status}")
    return open_queue().get(video_id)


def ended(video_id: str) -> Task:
    """Wait until the task of a video has ended; return it."""
    until(lambda: open_queue().get(video_id).ended, f"the end of {video_id}; it is {open_queue().get(video_id)}")
    return open_queue().get(video_id)


def work(queue: Queue, **options: Any) -> None:
    """Run all due tasks in this thread."""
    terms: dict[str, Any] = {"grace": "1s", "interval": 0.05, "prestart": 0} | options
    assert Worker(queue, until_idle=True, **terms).run() == 0


def encoded_once(task: Task) -> None:
    """Check that a video is done, each phase once, with no lease or error left."""
    assert (task.status, task.error, task.leased_by) == ("completed", None, None)
    done = [entry.phase for entry in task.history if entry.what in ("advanced", "completed")]
    assert done == ["encode", "check", "delete_raw"]


class Reader:
    """Receives messages as a worker does, and runs nothing."""

    def __init__(self, queue: Queue, mode: str, worker: str = "reader") -> None:
        self._queue = queue
        self._results = Results(queue, mode)
        settings = Settings.of_environment({**os.environ, "ENCODER_MODE": mode})
        self._reception = Reception(queue, open_inbox(settings), worker)
        self._reception.open()

    def receive(self) -> None:
        self._reception.receivers[0].receive_available()

    def look(self) -> None:
        """Look at the tasks of the messages that are held."""
        if self._reception.follower is not None:
            self._reception.follower.tick(self._queue.store.now())

    def results(self) -> dict[str, int]:
        """Return the results of messages since the last call, with their counts."""
        found = dict(self._results.counts)
        self._results.counts.clear()
        return found

    def close(self) -> None:
        self._reception.close()


@contextlib.contextmanager
def reading(queue: Queue, mode: str) -> Iterator[Reader]:
    queue.publish(*queue.pipelines.values())
    reader = Reader(queue, mode)
    try:
        yield reader
    finally:
        reader.close()


class Cloud:
    """The bucket and the queues, through boto3."""

    def __init__(self, endpoint: str, queue_url: str) -> None:
        self.sqs = boto3.client("sqs", endpoint_url=endpoint)
        self.s3 = boto3.client("s3", endpoint_url=endpoint)
        self.url = queue_url

    def send(self, body: object) -> None:
        self.sqs.send_message(QueueUrl=self.url, MessageBody=json.dumps(body))

    def counts(self, url: str = "") -> tuple[int, int]:
        """Return how many messages are visible, and how many are hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=url or self.url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    @property
    def dead(self) -> str:
        return f"{self.url}-dead"

    def keys(self, prefix: str = "") -> list[str]:
        found = self.s3.list_objects_v2(Bucket="videos", Prefix=prefix)
        return [each["Key"] for each in found.get("Contents", ())]

    def put_raw(self, video_id: str, path: Path) -> str:
        """Upload a raw object without a row; return its key."""
        key = f"raw/{video_id}/{path.name}"
        self.s3.put_object(Bucket="videos", Key=key, Body=path.read_bytes())
        return key

    def close(self) -> None:
        self.sqs.close()
        self.s3.close()


@contextlib.contextmanager
def environment(tmp_path: Path, endpoint: str, **more: str) -> Iterator[Path]:
    """Set the variables of an encoder with a bucket and queues of its own; yield its folder, whose name is not ASCII."""
    folder = tmp_path / "인코더 1"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            ours = name.startswith(("ENCODER_", "ONEROW_SCALE", "VIDEO_SCALE"))
            if ours and name not in ("ENCODER_FFMPEG", "ENCODER_FFPROBE"):
                patch.delenv(name)
        variables = {
            **cloud.create(endpoint),
            "ENCODER_STORE": f"sqlite:///{tmp_path}/encoder.db",
            "ENCODER_WORK": str(folder / "work"),
            "ENCODER_RETRY_WAIT": "1s",
            "ENCODER_VISIBILITY": "5s",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "eu-central-1",
            **more,
        }
        for name, value in variables.items():
            patch.setenv(name, value)
        yield folder


class Encoder(NamedTuple):
    """An encoder, with the cloud seen from outside."""

    home: Path
    queue: Queue
    aws: Cloud


@contextlib.contextmanager
def encoder_at(tmp_path: Path, server: SqsServer, **more: str) -> Iterator[Encoder]:
    """Set up an encoder for a fixture of a module, which runs its work and keeps what tests look at."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "ACCESS_KEY_ID": "test",
            "SECRET_ACCESS_KEY": "test",
            "DEFAULT_REGION": "eu-central-1",
        }.items():
            patch.setenv(f"AWS_{name}", value)
        with environment(tmp_path, server.url, **more) as home:
            aws, queue = Cloud(server.url, os.environ["ENCODER_QUEUE_URL"]), open_queue()
            try:
                yield Encoder(home, queue, aws)
            finally:
                queue.close()
                aws.close()
                server.reset()


class Workers:
    """`encoder run` as processes that the test can kill."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a supervisor and its worker; wait until they are ready."""
        queue = open_queue()
        before = {note.name for note in queue.store.notes("worker")}
        words = ["run", "--interval", "200ms", "--grace", "1s", "--prestart", "0", *options]
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "video_encoder", *words],
                env=os.environ | {"ENCODER_TEST_HOME": str(self._home)} | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._started.append(process)
        until(lambda: {note.name for note in queue.store.notes("worker")} - before, f"the worker\n{self.said()}")
        return process

    @property
    def log(self) -> Path:
        return self._home / "worker.log"

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self, number: int = -1) -> None:
        """Kill a worker and its supervisor, which would delay a new worker."""
        supervisor = self._started[number]
        workers = until(lambda: _children(supervisor.pid), "a worker process")
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        supervisor.kill()
        supervisor.wait(PATIENCE)

    def living(self, word: str = "") -> list[psutil.Process]:
        """Return the processes of this encoder whose command line contains a word."""
        return living("ENCODER_TEST_HOME", str(self._home), word)

    def close(self) -> None:
        kill_all("ENCODER_TEST_HOME", str(self._home), self._started)


def open_group() -> Any:
    """Create an Auto Scaling group `encoders` with one instance; return its client."""
    client = boto3.client("autoscaling")
    client.create_launch_configuration(LaunchConfigurationName="lc", ImageId="ami-12c6146b", InstanceType="t3.micro")
    client.create_auto_scaling_group(
        AutoScalingGroupName="encoders", LaunchConfigurationName="lc", MinSize=0, MaxSize=4, DesiredCapacity=1,
        AvailabilityZones=["eu-central-1a"],
    )  # fmt: skip
    return client


def _children(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [child for child in psutil.Process(pid).children() if child.status() != psutil.STATUS_ZOMBIE]
    return []


@contextlib.contextmanager
def workers(home: Path) -> Iterator[Workers]:
    made = Workers(home)
    try:
        yield made
    finally:
        made.close()
