"""Scale-in protection: set while tasks run, renewed, and given up when idle."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from onerow.core.errors import BadInput, ScalingUnavailable
from onerow.scaling.aws_client import AwsClient
from onerow.scaling.protection import InstanceProtection, Protection, Protector, TaskProtection
from tests.engine.kit import until
from tests.scaling.local_server import Answer, serving

ARN = "arn:aws:ecs:eu-central-1:123456789012:task/media/1234"


class Agent:
    """Answers as the ECS agent does at $ECS_AGENT_URI/task-protection/v1/state."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.enabled = False
        self.fails: Answer | None = None

    @contextmanager
    def serving(self) -> Iterator[str]:
        with serving(self._answer) as url:
            yield f"{url}/api/1234"

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if (method, path) != ("PUT", "/api/1234/task-protection/v1/state"):
            return 404, b"404 page not found"
        if self.fails is not None:
            return self.fails
        asked = json.loads(body)
        minutes = asked.get("ExpiresInMinutes", 120)
        if headers.get("content-type") != "application/json" or not 1 <= minutes <= 2880:
            return 400, {"error": {"Arn": ARN, "Code": "InvalidParameterException", "Message": "not valid"}}
        self.requests.append(asked)
        self.enabled = asked["ProtectionEnabled"]
        expires = {"ExpirationDate": "2026-11-16T19:00:00Z"} if self.enabled else {}
        return 200, {"protection": {"ProtectionEnabled": self.enabled, "TaskArn": ARN, **expires}}


def test_a_task_protects_itself_through_the_agent_and_gives_it_up() -> None:
    agent = Agent()
    with agent.serving() as url:
        protection = TaskProtection(url)
        protection.set(True)
        assert agent.enabled
        protection.set(False)
    assert agent.requests == [{"ProtectionEnabled": True, "ExpiresInMinutes": 60}, {"ProtectionEnabled": False}]


def test_a_failure_of_the_agent_is_reported() -> None:
    agent = Agent()
    with agent.serving() as url:
        # The agent answers 200 with a failure if ECS refuses, for example for a task that belongs to no service.
        agent.fails = (200, {"failure": {"Arn": ARN, "Detail": "no service", "Reason": "TASK_NOT_VALID"}})
        with pytest.raises(ScalingUnavailable, match="TASK_NOT_VALID: no service"):
            TaskProtection(url).set(True)
        agent.fails = (500, {"error": {"Arn": ARN, "Code": "ServerException", "Message": "try again"}})
        with pytest.raises(ScalingUnavailable, match="500"):
            TaskProtection(url).set(True)
    with pytest.raises(ScalingUnavailable):
        TaskProtection(url).set(True)


def test_outside_of_a_task_the_error_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ECS_AGENT_URI", raising=False)
    with pytest.raises(BadInput, match="ECS_AGENT_URI"):
        TaskProtection()


def test_an_instance_protects_itself_in_its_group(aws: str) -> None:
    client = boto3.client("autoscaling")
    client.create_launch_configuration(LaunchConfigurationName="lc", ImageId="ami-12c6146b", InstanceType="t3.micro")
    client.create_auto_scaling_group(
        AutoScalingGroupName="encoders", LaunchConfigurationName="lc", MinSize=1, MaxSize=2,
        AvailabilityZones=["eu-central-1a"],
    )  # fmt: skip
    (group,) = client.describe_auto_scaling_groups()["AutoScalingGroups"]
    instance = group["Instances"][0]["InstanceId"]

    def metadata(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Answer as the instance metadata service, version 2."""
        if (method, path) == ("PUT", "/latest/api/token"):
            return 200, b"token" if "x-aws-ec2-metadata-token-ttl-seconds" in headers else b""
        if headers.get("x-aws-ec2-metadata-token") != "token":
            return 401, b""
        return (200, instance.encode()) if path == "/latest/meta-data/instance-id" else (404, b"")

    def protected() -> bool:
        (found,) = client.describe_auto_scaling_instances(InstanceIds=[instance])["AutoScalingInstances"]
        return bool(found["ProtectedFromScaleIn"])

    with serving(metadata) as url:
        protection = InstanceProtection(AwsClient("autoscaling"), url)
        protection.set(True)
        assert protected()
        protection.set(False)
        assert not protected()
    client.close()


class Recorder:
    """A protection that records what is set."""

    def __init__(self, renew_after: float | None = None) -> None:
        self.renew_after = renew_after
        self.set_to: list[bool] = []
        self.fails = False

    def set(self, protected: bool) -> None:
        if self.fails:
            raise ScalingUnavailable("throttled")
        self.set_to.append(protected)


def test_protection_follows_the_work() -> None:
    running, said = 0, list[str]()
    recorder = Recorder(renew_after=600.0)
    protection: Protection = recorder
    protector = Protector(protection, lambda: running, said.append)
    protector.tick(0.0)
    assert recorder.set_to == [False]  # an earlier process may have left it set
    running = 1
    protector.tick(1.0)
    protector.tick(2.0)
    assert recorder.set_to == [False, True]
    running = 0
    protector.tick(10.0)  # idle for a moment: the next task may come at once
    assert recorder.set_to == [False, True]
    protector.tick(40.0)
    assert recorder.set_to == [False, True, False]
    running = 1
    for now in (50.0, 649.0, 650.0, 700.0):
        protector.tick(now)
    assert recorder.set_to == [False, True, False, True, True]  # renewed once
    recorder.fails, running = True, 0
    protector.tick(800.0)
    protector.tick(801.0)
    assert said == ["scale-in protection could not be given up: throttled"]
    recorder.fails = False
    protector.tick(806.0)
    assert recorder.set_to[-1] is False


def test_the_protector_gives_it_up_at_the_end() -> None:
    agent, busy = Agent(), threading.Event()
    with agent.serving() as url:
        busy.set()
        protector = Protector(TaskProtection(url), lambda: int(busy.is_set()), print)
        protector.start()
        until(lambda: agent.enabled, "protection")
        protector.close()
        assert not agent.enabled
