"""The scale Lambda's answer, and its formulas."""

from collections.abc import Iterator
from typing import Any

import pytest

from apps.video_encoder.tests.kit import Cloud, open_group
from onerow import Pipeline, Queue
from onerow.core.scaling import ScaleSettings, ScaleState, Signal, decide
from video_encoder import VideoRepository, videos
from video_encoder.pipeline import Job
from video_encoder.scale_lambda import lambda_handler

FIELDS = {
    "video_visible", "video_inflight", "video_backlog_add", "video_desired_raw", "video_new_desired", "video_decision",
    "stable_zero_since_epoch",
}  # fmt: skip


@pytest.fixture
def group(aws: Cloud, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An Auto Scaling group with one instance, and the Lambda's settings."""
    client = open_group()
    monkeypatch.setenv("ONEROW_SCALE_TARGET", "asg:encoders")
    monkeypatch.setenv("ONEROW_SCALE_MAX", "4")
    queue.publish(videos)
    yield client
    client.close()


def add(queue: Queue, count: int) -> None:
    queue.add_many(videos, [Job(f"raw/{number}/a.mp4", "a.mp4") for number in range(count)])


def desired(client: Any) -> int:
    (found,) = client.describe_auto_scaling_groups()["AutoScalingGroups"]
    return int(found["DesiredCapacity"])


@pytest.mark.contract(
    "The scale decision has `video_visible`, `video_inflight`, `video_backlog_add`, `video_desired_raw`, `video_new_desired`, `video_decision` and `stable_zero_since_epoch`."
)
def test_the_decision_has_the_seed_s_fields(queue: Queue, group: Any) -> None:
    result = lambda_handler({}, None)["video_scale_result"]
    assert set(result) == FIELDS
    assert [result[f"video_{name}"] for name in ("visible", "inflight", "backlog_add", "desired_raw")] == [0] * 4
    assert (result["video_decision"], result["video_new_desired"]) == ("hold", 1)
    assert result["stable_zero_since_epoch"] > 1_700_000_000


@pytest.mark.contract(
    "The scale decision is merged into a Lambda handler's answer as `video_scale_result` beside its other keys."
)
def test_the_answer_of_the_lambda_keeps_its_other_keys(queue: Queue, group: Any) -> None:
    depths = {"ai_queue_depth": 0, "messaging_queue_depth": 0, "video_queue_depth": 0}
    answer = lambda_handler({}, None)
    assert {name: answer[name] for name in depths} == depths
    assert set(answer) == {*depths, "video_scale_result"}


@pytest.mark.contract(
    "The scale decision is merged into a Lambda handler's answer as `video_scale_result` beside its other keys."
)
@pytest.mark.parametrize(
    "variable, value, says",
    [
        ("ENCODER_STORE", "postgresql://127.0.0.1:1/videos", "refused"),
        ("ENCODER_STORE", "", "ENCODER_STORE is not set"),
        ("ONEROW_SCALE_TARGET", "", "ONEROW_SCALE_TARGET is not set"),
        ("ONEROW_SCALE_TARGET", "asg:other", "no Auto Scaling group 'other'"),
        ("ONEROW_SCALE_MAX", "many", "ONEROW_SCALE_MAX"),
    ],
)
def test_a_scaling_that_fails_takes_no_other_key_along(
    queue: Queue, aws: Cloud, group: Any, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    aws.send({"video_id": "later"})
    monkeypatch.setenv("AI_QUEUE_URL", aws.dead)
    monkeypatch.setenv(variable, value)
    answer = lambda_handler({}, None)
    assert says in answer.pop("video_scale_result")["error"]
    assert answer == {"ai_queue_depth": 0, "messaging_queue_depth": 0, "video_queue_depth": 1}
    assert desired(group) == 1


def test_a_queue_that_can_not_be_read_takes_no_other_key_along(
    queue: Queue, aws: Cloud, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI_QUEUE_URL", f"{aws.url}-absent")
    monkeypatch.setenv("MESSAGING_QUEUE_URL", aws.url)
    add(queue, 3)
    aws.send({"video_id": "later"})
    answer = lambda_handler({}, None)
    assert (answer["ai_queue_depth"], answer["messaging_queue_depth"], answer["video_queue_depth"]) == (None, 1, 1)
    assert answer["video_scale_result"]["video_new_desired"] == desired(group) == 4


@pytest.mark.contract("Running leases count as inflight, so that busy workers are not stopped.")
def test_leases_count_as_in_flight(queue: Queue, group: Any) -> None:
    add(queue, 2)
    with VideoRepository(queue) as busy:
        # Fast ACK: no message is left while both are encoded.
        for task in queue.select():
            assert busy.try_claim_video(task.task_id, "w1")
        result = lambda_handler({}, None)["video_scale_result"]
        assert (result["video_visible"], result["video_inflight"], result["video_desired_raw"]) == (0, 2, 2)
        assert (result["video_decision"], result["stable_zero_since_epoch"]) == ("scale_out", None)
        assert desired(group) == 2


@pytest.mark.contract("backlog_add = ceil(visible / slots per worker); desired = inflight + backlog_add.")
def test_desired_is_what_runs_and_what_the_backlog_needs(
    queue: Queue, aws: Cloud, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEROW_SCALE_SLOTS", "2")
    add(queue, 3)
    aws.send({"video_id": "later"})  # a message that is no row yet
    with VideoRepository(queue) as busy:
        assert busy.try_claim_video(next(iter(queue.select())).task_id, "w1")
        result = lambda_handler({}, None)["video_scale_result"]
    assert (result["video_visible"], result["video_inflight"]) == (2 + 1, 1)
    assert (result["video_backlog_add"], result["video_desired_raw"]) == (2, 1 + 2)  # 3 of 2 slots each, rounded up


def test_rows_of_other_pipelines_in_the_same_database_need_no_encoder(queue: Queue, group: Any) -> None:
    other = Pipeline("letters")
    other.phase(name="send")(_send)
    letters = Queue(queue.url)
    letters.publish(other)
    letters.add_many(other, [{}] * 5)
    letters.close()
    assert lambda_handler({}, None)["video_scale_result"]["video_backlog_add"] == 0


def _send() -> None: ...


@pytest.mark.contract("With VIDEO_SCALE_VISIBLE_ONLY=1 desired = backlog_add + warm_pool.")
def test_by_visible_only_desired_is_the_backlog_and_the_warm_pool(
    queue: Queue, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIDEO_SCALE_VISIBLE_ONLY", "1")
    monkeypatch.setenv("ONEROW_SCALE_SLOTS", "1")
    monkeypatch.setenv("ONEROW_SCALE_WARM_POOL", "1")
    add(queue, 3)
    with VideoRepository(queue) as busy:
        assert busy.try_claim_video(next(iter(queue.select())).task_id, "w1")
        result = lambda_handler({}, None)["video_scale_result"]
    assert (result["video_inflight"], result["video_backlog_add"], result["video_desired_raw"]) == (1, 2, 2 + 1)


@pytest.mark.contract("The decision is one of scale_out, hold, scale_in, at_max.")
def test_the_words_of_the_decision() -> None:
    settings, empty = ScaleSettings(slots=1, maximum=4, mode="inflight"), ScaleState()
    long_empty = ScaleState(zero_since=0.0)
    words = [
        decide(Signal(at=1000.0, current=current, messages_inflight=inflight), settings, state).decision
        for current, inflight, state in [(1, 3, empty), (2, 2, empty), (2, 0, long_empty), (4, 9, empty)]
    ]
    assert words == ["scale_out", "hold", "scale_in", "at_max"]


@pytest.mark.contract("Scale-in only after visible == 0 and inflight == 0 have lasted (10 minutes by default).")
def test_scale_in_waits_until_zero_has_lasted_ten_minutes() -> None:
    settings, state = ScaleSettings(slots=1, mode="inflight"), ScaleState()
    for at, inflight, decision in [
        (0.0, 0, "hold"), (590.0, 0, "hold"), (595.0, 1, "hold"), (600.0, 0, "hold"), (1190.0, 0, "hold"),
        (1201.0, 0, "scale_in"),
    ]:  # fmt: skip
        decided = decide(Signal(at=at, current=2, messages_inflight=inflight), settings, state)
        assert (at, decided.decision) == (at, decision)
        state = decided.state
