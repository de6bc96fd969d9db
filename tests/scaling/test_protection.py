"""Scale-in protection: set while tasks run, renewed, and given up when idle."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html>not JSON</html>"),
        (200, b"[]"),
        (200, {}),
        (200, {"protection": None}),
        (200, {"protection": {"TaskArn": ARN}}),
        (200, {"failure": "no object"}),
        (500, b"\xff"),
        (204, b""),
    ],
    ids=str,
)
def test_an_odd_answer_of_the_agent_is_an_error_that_says_so(answer: Answer) -> None:
    agent = Agent()
    agent.fails = answer
    with agent.serving() as url, pytest.raises(ScalingUnavailable):
        TaskProtection(url).set(True)


@pytest.fixture
def instance(aws: str) -> Iterator[tuple[Any, str]]:
    """An instance in a group: its client and its id."""
    client = boto3.client("autoscaling")
    client.create_launch_configuration(LaunchConfigurationName="lc", ImageId="ami-12c6146b", InstanceType="t3.micro")
    client.create_auto_scaling_group(
        AutoScalingGroupName="encoders", LaunchConfigurationName="lc", MinSize=1, MaxSize=2,
        AvailabilityZones=["eu-central-1a"],
    )  # fmt: skip
    (group,) = client.describe_auto_scaling_groups()["AutoScalingGroups"]
    yield client, group["Instances"][0]["InstanceId"]
    client.close()


@contextmanager
def metadata_of(instance: str, region: str = "eu-central-1") -> Iterator[str]:
    """Serve the instance metadata service, version 2."""
    values = {"/latest/meta-data/instance-id": instance, "/latest/meta-data/placement/region": region}

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if (method, path) == ("PUT", "/latest/api/token"):
            return 200, b"token" if "x-aws-ec2-metadata-token-ttl-seconds" in headers else b""
        if headers.get("x-aws-ec2-metadata-token") != "token":
            return 401, b""
        return (200, values[path].encode()) if path in values else (404, b"")

    with serving(answer) as url:
        yield url


def is_protected(client: Any, instance: str) -> bool:
    (found,) = client.describe_auto_scaling_instances(InstanceIds=[instance])["AutoScalingInstances"]
    return bool(found["ProtectedFromScaleIn"])


def test_an_instance_protects_itself_in_its_group(instance: tuple[Any, str]) -> None:
    with metadata_of(instance[1]) as url:
        protection = InstanceProtection(AwsClient("autoscaling"), url)
        protection.set(True)
        assert is_protected(*instance)
        protection.set(False)
        assert not is_protected(*instance)


def test_an_instance_whose_protection_was_taken_away_sets_it_again(instance: tuple[Any, str]) -> None:
    client, name = instance
    said = list[str]()
    with metadata_of(name) as url:
        protector = Protector(InstanceProtection(AwsClient("autoscaling"), url), lambda: 1, said.append)
        protector.tick(0.0)
        client.set_instance_protection(InstanceIds=[name], AutoScalingGroupName="encoders", ProtectedFromScaleIn=False)
        protector.tick(60.0)
        protector.tick(180.0)
    assert (is_protected(client, name), said) == (True, [])


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION", None])
def test_the_region_is_the_environments_or_else_that_of_the_instance(
    aws: str, variable: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "eu-west-3")
    with metadata_of("i-1", "ap-northeast-2") as url:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        client = AwsClient("sqs")
        queue = client.call("create_queue", QueueName="where")["QueueUrl"]
        names = ["QueueArn"]
        arn = client.call("get_queue_attributes", QueueUrl=queue, AttributeNames=names)["Attributes"]["QueueArn"]
    assert arn.split(":")[3] == ("eu-west-3" if variable else "ap-northeast-2")
    client.close()


def test_without_any_region_the_error_says_what_to_set(
    aws: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with serving(lambda *asked: (404, b"")) as url:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        with pytest.raises(BadInput) as found:
            AwsClient("sqs").call("list_queues")
    assert "AWS_REGION" in (found.value.fix or "")


class Recorder:
    """A protection that records what is set."""

    def __init__(self, renew_after: float | None = None) -> None:
        self.renew_after = renew_after
        self.set_to: list[bool] = []
        self.fails: Exception | None = None

    def set(self, protected: bool) -> None:
        if self.fails is not None:
            raise self.fails
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
    recorder.fails, running = ScalingUnavailable("throttled"), 0
    protector.tick(800.0)
    protector.tick(801.0)
    assert said == ["scale-in protection could not be given up: throttled"]
    recorder.fails = None
    protector.tick(806.0)
    assert recorder.set_to[-1] is False


def test_an_error_while_giving_it_up_does_not_delay_the_next_protection() -> None:
    running = 0
    recorder = Recorder()
    protector = Protector(recorder, lambda: running, lambda line: None)
    recorder.fails = ScalingUnavailable("the instance is not in service")
    protector.tick(0.0)
    running, recorder.fails = 1, None
    protector.tick(0.5)
    assert recorder.set_to == [True]


def test_an_error_that_lasts_is_said_once() -> None:
    said = list[str]()
    recorder = Recorder(renew_after=600.0)
    protector = Protector(recorder, lambda: 1, said.append)
    recorder.fails = ScalingUnavailable("throttled")
    for now in range(60):
        protector.tick(float(now))
    recorder.fails = ScalingUnavailable("denied")
    protector.tick(70.0)
    recorder.fails = None
    protector.tick(80.0)
    recorder.fails = ScalingUnavailable("denied")
    protector.tick(700.0)
    assert [line.rpartition(" ")[2] for line in said] == ["throttled", "denied", "denied"]


@pytest.mark.parametrize("error", [ScalingUnavailable("x"), BadInput("no region"), KeyError("x"), RecursionError("x")])
def test_no_error_ends_the_renewal(error: Exception) -> None:
    said = list[str]()
    recorder = Recorder(renew_after=600.0)
    recorder.fails = error
    protector = Protector(recorder, lambda: 1, said.append)
    protector.tick(0.0)
    recorder.fails = None
    protector.tick(6.0)
    assert (recorder.set_to, len(said)) == ([True], 1)


def test_a_protection_whose_answer_was_lost_is_given_up() -> None:
    running = 0
    recorder = Recorder()
    protector = Protector(recorder, lambda: running, lambda line: None)
    protector.tick(0.0)
    running, recorder.fails = 1, ScalingUnavailable("timed out")
    protector.tick(10.0)  # AWS may have set it
    running, recorder.fails = 0, None
    protector.tick(40.0)
    assert recorder.set_to == [False, False]


def test_the_protector_gives_it_up_at_the_end() -> None:
    agent, busy = Agent(), threading.Event()
    with agent.serving() as url:
        busy.set()
        protector = Protector(TaskProtection(url), lambda: int(busy.is_set()), print)
        protector.start()
        until(lambda: agent.enabled, "protection")
        protector.close()
        assert not agent.enabled
