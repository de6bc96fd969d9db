"""A worker on an instance of an Auto Scaling group that is asked to stop while it encodes, once."""

import contextlib
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from apps.video_encoder.tests.kit import PATIENCE, becomes, encoder_at, open_group, until, workers
from onerow import Task
from tests.scaling.local_server import Answer, serving
from tests.servers.sqs import SqsServer
from video_encoder import VideoStatus, upload_file

pytestmark = pytest.mark.faults


class Stopped(NamedTuple):
    """Whether the instance was protected, the exit code of the worker that got SIGTERM, and the video."""

    protected_before: bool
    protected_while_it_encoded: bool
    protected_at_the_end: bool
    exit_code: int
    task: Task


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, sqs_server: SqsServer, long_clip: Path) -> Stopped:
    with (
        encoder_at(tmp_path_factory.mktemp("scale"), sqs_server) as (home, queue, _),
        contextlib.closing(open_group()) as group,
    ):
        (found,) = group.describe_auto_scaling_groups()["AutoScalingGroups"]
        instance = found["Instances"][0]["InstanceId"]

        def metadata(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
            return (200, b"token") if path == "/latest/api/token" else (200, instance.encode())

        def protected() -> bool:
            (seen,) = group.describe_auto_scaling_instances(InstanceIds=[instance])["AutoScalingInstances"]
            return bool(seen["ProtectedFromScaleIn"])

        before = protected()
        upload_file(long_clip, "v1")
        with serving(metadata) as url, workers(home) as encoders:
            worker = encoders.start("--protect", "asg", "--grace", "100s", AWS_EC2_METADATA_SERVICE_ENDPOINT=url)
            becomes("v1", VideoStatus.PROCESSING)
            busy = until(protected, f"protection\n{encoders.said()}")
            worker.send_signal(signal.SIGTERM)  # as AWS does before it ends an instance
            code = worker.wait(PATIENCE)
        return Stopped(before, busy, protected(), code, queue.get("v1"))


@pytest.mark.contract("An instance protects itself from scale-in while it encodes.")
def test_a_busy_instance_is_protected_and_an_idle_one_is_not(stopped: Stopped) -> None:
    seen = (stopped.protected_before, stopped.protected_while_it_encoded, stopped.protected_at_the_end)
    assert seen == (False, True, False)


@pytest.mark.contract("Scale-in drains, never kills.")
def test_a_worker_that_is_told_to_stop_finishes_its_video(stopped: Stopped) -> None:
    assert stopped.exit_code == 0
    assert "encode" in stopped.task.results
    ended_badly = [entry.what for entry in stopped.task.history if entry.what in ("rescued", "retried", "failed")]
    assert ended_badly == []
