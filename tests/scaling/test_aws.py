"""Auto Scaling groups, ECS services, SQS counts and the Lambda handler, against moto over HTTP."""

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from msgspec.structs import replace

from onerow import Queue
from onerow.cli.main import main
from onerow.cli.maintain.deploy import render
from onerow.core.errors import BadInput, ScalingUnavailable
from onerow.core.scaling import ScaleSettings, ScaleState
from onerow.engine.control import notes
from onerow.engine.control.definitions import WORKER
from onerow.ports import Note
from onerow.scaling import Scaler
from onerow.scaling.aws_client import AwsClient
from onerow.scaling.aws_lambda import VARIABLES, handler, scale, settings_of, with_scale_result
from onerow.scaling.protection import InstanceProtection
from onerow.scaling.scaler import SCALE
from onerow.scaling.targets import open_target, sqs_counts
from tests.scaling.conftest import lease
from tests.scaling.local_server import serving

ROOT = Path(__file__).parents[2]

SETTINGS = ScaleSettings(slots=2, maximum=100)


@pytest.fixture
def group(aws: str) -> Any:
    """An Auto Scaling group `encoders` of 0 to 5 instances; return its client."""
    client = boto3.client("autoscaling")
    client.create_launch_configuration(LaunchConfigurationName="lc", ImageId="ami-12c6146b", InstanceType="t3.micro")
    client.create_auto_scaling_group(
        AutoScalingGroupName="encoders",
        LaunchConfigurationName="lc",
        MinSize=0,
        MaxSize=5,
        DesiredCapacity=0,
        AvailabilityZones=["eu-central-1a"],
    )
    yield client
    client.close()


def desired(client: Any) -> int:
    (found,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=["encoders"])["AutoScalingGroups"]
    return int(found["DesiredCapacity"])


def test_a_group_grows_with_the_work_up_to_its_own_maximum(group: Any, queue: Queue) -> None:
    scaler = Scaler(queue, SETTINGS, target=open_target("asg:encoders"))
    queue.add_many("clips", [{"n": n} for n in range(3)])
    decision = scaler.decide()
    assert (decision.decision, decision.workers, desired(group)) == ("scale_out", 2, 0)
    assert scaler.apply(decision) is True
    assert desired(group) == 2
    queue.add_many("clips", [{"n": n} for n in range(40)])
    assert scaler.apply(scaler.decide()) is True
    assert desired(group) == 5  # MaxSize, which AWS would enforce and moto does not
    decision = scaler.decide()
    assert (decision.decision, scaler.apply(decision), desired(group)) == ("at_max", False, 5)


@pytest.mark.parametrize(
    "sizes, wanted, tasks, running, asked",
    [
        ((0, 5, 0), (0, 8), 100, 0, 5),
        ((3, 5, 3), (0, 1), 0, 0, None),  # the group's minimum is above our maximum
        ((3, 5, 3), (0, 2), 100, 0, None),
        ((0, 3, 0), (5, 8), 0, 0, 3),  # our minimum is above the group's maximum
        ((0, 0, 0), (0, 8), 100, 0, None),  # the group may have none
        ((0, 0, 0), (2, 8), 0, 0, None),
        ((0, 1, 1), (0, 8), 3, 3, None),  # more are busy than the group may have
    ],
)
def test_a_group_is_never_asked_for_a_size_that_it_does_not_allow(
    group: Any, queue: Queue, sizes: Any, wanted: Any, tasks: int, running: int, asked: int | None
) -> None:
    least, most, count = sizes
    group.update_auto_scaling_group(AutoScalingGroupName="encoders", MinSize=least, MaxSize=most, DesiredCapacity=count)
    queue.add_many("clips", [{"n": n} for n in range(tasks)])
    for number in range(running):
        body = {"concurrency": 2, "phases": [["clips", "video"]]}
        assert queue.store.write_notes([Note(WORKER, f"w{number}", body)]) == [True]
        lease(queue, 1, f"w{number}")
    settings = replace(SETTINGS, minimum=wanted[0], maximum=wanted[1])
    scaler = Scaler(queue, settings, target=open_target("asg:encoders"))
    decision = scaler.decide()
    assert least <= decision.workers <= most
    assert scaler.apply(decision) is (asked is not None)
    assert desired(group) == (count if asked is None else asked)
    again = scaler.decide()
    assert (again.workers, scaler.apply(again)) == (desired(group), False)
    assert again.state == decision.state or asked is not None  # the same again changes nothing


def test_a_group_shrinks_after_the_surplus_has_lasted_and_its_state_is_in_the_store(group: Any, queue: Queue) -> None:
    settings = replace(SETTINGS, scale_in_after=600.0, scale_in_cooldown=0.0)
    group.set_desired_capacity(AutoScalingGroupName="encoders", DesiredCapacity=3)
    scaler = Scaler(queue, settings, target=open_target("asg:encoders"))
    first = scaler.decide()
    scaler.apply(first)
    assert (first.decision, desired(group)) == ("hold", 3)
    note = notes.find(queue.store, SCALE, "asg:encoders")
    assert note is not None
    assert note.body["surplus_since"] == first.signal.at
    # Ten minutes later, in another process.
    earlier = note.body | {"surplus_since": first.signal.at - 600}
    notes.put(queue.store, replace(note, body=earlier))
    again = Scaler(queue, settings, target=open_target("asg:encoders"))
    decision = again.decide()
    assert decision.decision == "scale_in"
    again.apply(decision)
    assert desired(group) == 0


def test_running_leases_keep_the_group(group: Any, queue: Queue) -> None:
    queue.add_many("clips", [{"n": n} for n in range(4)])
    lease(queue, 4)
    group.set_desired_capacity(AutoScalingGroupName="encoders", DesiredCapacity=2)
    scaler = Scaler(
        queue, replace(SETTINGS, scale_in_after=0.0, scale_in_cooldown=0.0), target=open_target("asg:encoders")
    )
    decision = scaler.decide()
    assert (decision.decision, decision.workers) == ("hold", 2)


@pytest.fixture
def service(aws: str) -> Any:
    """An ECS service `encoders` without tasks in the cluster `media`; return its client."""
    client = boto3.client("ecs")
    client.create_cluster(clusterName="media")
    client.register_task_definition(family="worker", containerDefinitions=[{"name": "w", "image": "w", "memory": 64}])
    client.create_service(cluster="media", serviceName="encoders", taskDefinition="worker", desiredCount=0)
    yield client
    client.close()


def test_a_service_is_scaled(service: Any, queue: Queue) -> None:
    queue.add_many("clips", [{"n": n} for n in range(5)])
    scaler = Scaler(queue, SETTINGS, target=open_target("ecs:media/encoders"))
    assert scaler.apply(scaler.decide()) is True
    (found,) = service.describe_services(cluster="media", services=["encoders"])["services"]
    assert found["desiredCount"] == 3


def test_messages_of_a_queue_count_before_they_are_rows(aws: str, queue: Queue) -> None:
    client = boto3.client("sqs")
    url = client.create_queue(QueueName="videos")["QueueUrl"]
    for number in range(5):
        client.send_message(QueueUrl=url, MessageBody=str(number))
    client.receive_message(QueueUrl=url, MaxNumberOfMessages=1)
    client.close()
    counts = sqs_counts(url, AwsClient("sqs"))
    assert counts == (4, 1)
    scaler = Scaler(queue, replace(SETTINGS, mode="inflight"), messages=lambda: counts)
    decision = scaler.decide(ScaleState())
    assert decision.fields("video")["video_desired_raw"] == 1 + 2
    assert Scaler(queue, SETTINGS, messages=lambda: counts).decide(ScaleState()).raw == 2


def test_messages_are_counted_in_the_region_of_the_queue(
    group: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = boto3.client("sqs", region_name="eu-west-3")
    client.send_message(QueueUrl=client.create_queue(QueueName="videos")["QueueUrl"], MessageBody="1")
    client.close()
    url = "https://sqs.eu-west-3.amazonaws.com/123456789012/videos"
    environment = {"ONEROW_STORE": queue.url, "ONEROW_SCALE_TARGET": "asg:encoders", "ONEROW_SCALE_SQS": url}
    assert scale(environment)["video_scale_result"]["video_visible"] == 1
    with pytest.raises(SystemExit) as ended:
        main(["scale", "--store", queue.url, "--json", "--sqs", url, "--prefix", "video"], prog_name="onerow")
    assert (ended.value.code or 0, json.loads(capsys.readouterr().out)["video_visible"]) == (0, 1)


@pytest.mark.parametrize("event", [None, [], "x", {"source": "aws.events"}, {"Records": [{"body": "{}"}]}])
def test_the_lambda_handler_needs_nothing_from_its_event_and_its_answer_is_json(
    event: Any, group: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEROW_STORE", queue.url)
    monkeypatch.setenv("ONEROW_SCALE_TARGET", "asg:encoders")
    monkeypatch.setenv("ONEROW_SCALE_PREFIX", "encoder")
    for name in ("SLOTS", "MIN", "MAX", "PHASES", "TARGET_WAIT", "IN_AFTER", "MODE", "SQS", "WARM_POOL"):
        monkeypatch.setenv(f"ONEROW_SCALE_{name}", "")  # as a template without a value sets it
    answer = json.loads(json.dumps(handler(event, None)))
    assert (answer["changed"], answer["encoder_scale_result"]["encoder_decision"]) == (False, "hold")
    assert isinstance(answer["encoder_scale_result"]["stable_zero_since_epoch"], int)


def test_the_lambda_handler_scales_and_answers_with_the_fields_of_the_decision(
    group: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add_many("clips", [{"n": n} for n in range(3)])
    monkeypatch.setenv("ONEROW_STORE", queue.url)
    monkeypatch.setenv("ONEROW_SCALE_TARGET", "asg:encoders")
    monkeypatch.setenv("ONEROW_SCALE_SLOTS", "2")
    monkeypatch.setenv("ONEROW_SCALE_PHASES", "clips.video")
    monkeypatch.setenv("VIDEO_SCALE_VISIBLE_ONLY", "1")
    monkeypatch.setenv("ONEROW_SCALE_WARM_POOL", "1")
    answer = handler({"source": "aws.events"}, None)
    assert answer["video_scale_result"] == {
        "video_visible": 3,
        "video_inflight": 0,
        "video_backlog_add": 2,
        "video_desired_raw": 3,
        "video_new_desired": 3,
        "video_decision": "scale_out",
        "stable_zero_since_epoch": None,
    }
    assert (answer["target"], answer["changed"]) == ("asg:encoders", True)
    assert desired(group) == 3


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The actions of IAM that calls of AwsClient needed."""
    found, call = set[str](), AwsClient.call

    def recorded(self: AwsClient, operation: str, **terms: Any) -> dict[str, Any]:
        answer = call(self, operation, **terms)
        meta = self._open().meta
        found.add(f"{meta.service_model.signing_name}:{meta.method_to_api_mapping[operation]}")
        return answer

    monkeypatch.setattr(AwsClient, "call", recorded)
    return found


@pytest.mark.parametrize("target", ["asg:encoders", "ecs:media/encoders"])
def test_the_rights_of_the_template_are_those_of_the_calls(
    target: str, group: Any, service: Any, queue: Queue, calls: set[str]
) -> None:
    client = boto3.client("sqs")
    sqs = client.create_queue(QueueName="videos")["QueueUrl"]
    client.close()
    queue.add_many("clips", [{"n": n} for n in range(3)])
    environment = {"ONEROW_STORE": queue.url, "ONEROW_SCALE_TARGET": target, "ONEROW_SCALE_SQS": sqs}
    assert scale(environment)["changed"] is True
    url = "https://sqs.eu-central-1.amazonaws.com/123456789012/videos"
    template = yaml.safe_load(render("lambda", "media.app", target=target, sqs=url))
    (policy,) = template["Resources"]["Role"]["Properties"]["Policies"]
    allowed = {action for statement in policy["PolicyDocument"]["Statement"] for action in statement["Action"]}
    assert {action for action in allowed if not action.startswith("logs:")} == calls


def test_the_rights_of_workers_in_the_guide_are_those_of_the_calls(group: Any, calls: set[str]) -> None:
    group.update_auto_scaling_group(AutoScalingGroupName="encoders", DesiredCapacity=1)
    (found,) = group.describe_auto_scaling_groups()["AutoScalingGroups"]
    instance = found["Instances"][0]["InstanceId"]
    with serving(lambda method, path, headers, body: (200, instance.encode())) as metadata:
        InstanceProtection(AwsClient("autoscaling"), metadata).set(True)
    guide = (ROOT / "docs" / "how-to" / "scaling-aws.md").read_text(encoding="utf-8")
    policy = json.loads(guide.partition("```json\n")[2].partition("```")[0])
    assert {statement["Action"] for statement in policy["Statement"]} == calls


def test_the_result_is_merged_beside_the_other_keys_of_an_answer(queue: Queue) -> None:
    decision = Scaler(queue, SETTINGS).decide()
    answer = with_scale_result({"ai": 1, "messaging": 2, "video": 3}, decision)
    assert sorted(answer) == ["ai", "messaging", "video", "video_scale_result"]
    assert answer["video_scale_result"]["video_decision"] == "hold"


@pytest.mark.parametrize(
    "environment, field",
    [
        ({}, "target"),
        ({"ONEROW_SCALE_TARGET": "vm:x"}, "apply"),
        ({"ONEROW_SCALE_TARGET": "ecs:x"}, "apply"),
        ({"ONEROW_SCALE_TARGET": "asg:x?zone=1"}, "apply"),
    ],
)
def test_a_wrong_target_is_rejected(environment: dict[str, str], field: str, queue: Queue) -> None:
    with pytest.raises(BadInput) as found:
        scale({"ONEROW_STORE": queue.url} | environment)
    assert found.value.field == field
    assert found.value.fix


@pytest.mark.parametrize(
    "values", [{"ONEROW_SCALE_SLOTS": "two"}, {"ONEROW_SCALE_MODE": "fast"}, {"ONEROW_SCALE_IN_AFTER": "soon"}]
)
def test_a_wrong_setting_of_the_handler_is_rejected(values: dict[str, str]) -> None:
    assert set(values) <= set(VARIABLES)
    with pytest.raises(BadInput):
        settings_of(values, "video")


def test_an_unknown_group_and_a_refusal_are_errors_that_say_so(aws: str, queue: Queue) -> None:
    with pytest.raises(BadInput, match="no Auto Scaling group 'none'"):
        Scaler(queue, SETTINGS, target=open_target("asg:none")).decide()
    with pytest.raises(ScalingUnavailable, match="ClusterNotFound"):
        Scaler(queue, SETTINGS, target=open_target("ecs:none/none")).decide()
    with pytest.raises(ScalingUnavailable):
        sqs_counts("https://sqs.eu-central-1.amazonaws.com/1/none", AwsClient("sqs"))


_NUMBERS = {"ApproximateNumberOfMessages": "x", "ApproximateNumberOfMessagesNotVisible": "1"}


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html>"), (200, b""), (200, {}), (200, []), (200, b"<a/>"), (200, {"services": [{}]}),
        (200, {"services": None}), (200, {"Attributes": _NUMBERS}), (204, b""), (403, b"<html>"), (500, b"<html>"),
    ],
    ids=str,
)  # fmt: skip
def test_an_odd_answer_in_the_place_of_aws_is_an_error_after_which_it_is_tried_again(
    answer: Any, aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with serving(lambda *asked: answer) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        for target in ("asg:encoders", "ecs:media/encoders"):
            with pytest.raises(ScalingUnavailable):
                open_target(target).bounds()
        with pytest.raises(ScalingUnavailable):
            sqs_counts("https://sqs.eu-central-1.amazonaws.com/1/videos", AwsClient("sqs"))
