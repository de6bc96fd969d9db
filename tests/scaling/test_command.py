"""`onerow scale`: explain, watch, apply and serve."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from onerow import Queue
from onerow.cli.main import main
from onerow.core.errors import StoreUnavailable
from onerow.core.scaling import ScaleSettings, ScaleState
from onerow.engine.control.definitions import WORKER
from onerow.ports import Note
from onerow.scaling import Scaler
from onerow.scaling.server import ScaleAnswers, make_server
from tests.engine.kit import PATIENCE, until
from tests.scaling.conftest import lease


def run(queue: Queue, *words: str) -> Result:
    return CliRunner().invoke(main, ["scale", "--store", queue.url, *words])


def test_explain_prints_the_decision_and_why(queue: Queue) -> None:
    queue.add_many("clips", [{"n": n} for n in range(5)])
    done = run(queue, "--slots", "2", "--explain")
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "scale_out  0 → 3 workers",
        "  needs 3 workers: max(0 busy, ceil((0 running + 5 to start) / 2 slots) = 3); 0 now.",
        "phase        ready  in 60 s  running  limit  can run  held back by",
        "clips.video      5        0        0               5",
    ]
    assert queue.store.notes("scale") == []


def test_json_has_the_answer_of_the_server_and_the_fields_of_a_prefix(queue: Queue) -> None:
    queue.add_many("clips", [{"n": n} for n in range(3)])
    lease(queue, 1)
    found = json.loads(run(queue, "--json", "--prefix", "video", "--slots", "2", "--mode", "inflight").output)
    assert (found["desired_workers"], found["ready"], found["running"]) == (2, 2, 1)
    assert (found["video_visible"], found["video_inflight"], found["video_decision"]) == (2, 1, "scale_out")


def test_apply_sets_a_group_and_says_so(queue: Queue, aws: str) -> None:
    client = boto3.client("autoscaling")
    client.create_launch_configuration(LaunchConfigurationName="lc", ImageId="ami-12c6146b", InstanceType="t3.micro")
    client.create_auto_scaling_group(
        AutoScalingGroupName="영상", LaunchConfigurationName="lc", MinSize=0, MaxSize=5,
        AvailabilityZones=["eu-central-1a"],
    )  # fmt: skip
    queue.add_many("clips", [{"n": n} for n in range(3)])
    done = run(queue, "--slots", "2", "--apply", "asg:영상")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("scale_out  0 → 2 workers  asg:영상\n")
    (group,) = client.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert group["DesiredCapacity"] == 2
    client.close()


@pytest.mark.parametrize(
    "words, says",
    [
        (["--explain", "--apply", "asg:x"], "give one of them"),
        (["--serve", "1", "--watch"], "leave --apply and --watch out"),
        (["--serve", "0.0.0.0:0"], "give --token-env"),
        (["--serve", "x"], "write 8080 or 0.0.0.0:8080"),
        (["--serve", "0", "--token-env", "NO_SUCH_TOKEN"], "put the token there"),
        (["--phases", "clip"], "did you mean 'clips'?"),
        (["--min", "9"], "raise the maximum"),
        (["--apply", "vm:x"], "asg:GROUP"),
    ],
)
def test_wrong_options_are_rejected_with_a_fix(queue: Queue, words: list[str], says: str) -> None:
    done = run(queue, *words)
    assert done.exit_code == 64
    assert says in done.output


def test_watch_decides_until_it_is_stopped(queue: Queue) -> None:
    queue.add("clips", {})
    argv = [sys.executable, "-m", "onerow", "scale", "--store", queue.url, "--watch", "--every", "100ms"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as lines:
        seen = [line for line, _ in zip(lines, range(8), strict=False)]
        process.send_signal(signal.SIGTERM)
        lines.read()
    assert process.wait(PATIENCE) == 0
    assert sum(line.startswith("scale_out  0 → 1") for line in seen) >= 2


def watching(store: str, *words: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "onerow", "scale", "--store", store, "--every", "100ms", *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def first_line(process: "subprocess.Popen[str]", text: str) -> str:
    """Return the first line with this text, after which the process is stopped; it must end with 0."""
    assert process.stdout is not None
    with process.stdout as lines:
        found = next((line for line in lines if text in line), "")
        process.send_signal(signal.SIGTERM)
        lines.read()
    assert process.wait(PATIENCE) == 0
    return found


def register(queue: Queue, name: str, slots: int) -> None:
    queue.store.write_notes([Note(WORKER, name, {"phases": [["clips", "video"]], "concurrency": slots})])


def test_watch_tells_when_a_surplus_has_lasted(queue: Queue) -> None:
    register(queue, "w1", 1)
    assert first_line(watching(queue.url, "--watch", "--scale-in-after", "500ms"), "scale_in").startswith(
        "scale_in  1 → 0"
    )


def test_watch_and_serve_start_while_the_store_is_unavailable() -> None:
    away = "postgresql://user@127.0.0.1:1/none"
    assert first_line(watching(away, "--watch"), "the next try is in 0.1 s")
    server = watching(away, "--serve", "0")
    assert server.stdout is not None
    url = re.search(r"http://\S+/scale", next(line for line in server.stdout if "serving" in line))
    assert url is not None
    assert get(url[0])[0] == 503
    server.send_signal(signal.SIGTERM)
    with server.stdout as lines:
        lines.read()
    assert server.wait(PATIENCE) == 0


def test_without_slots_each_decision_uses_those_of_the_workers_that_live_then(queue: Queue) -> None:
    scaler = Scaler(queue, ScaleSettings(), live_slots=True)
    assert scaler.decide().settings.slots == 16
    register(queue, "w1", 4)
    assert scaler.decide().settings.slots == 4


def get(url: str, token: str = "") -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=900) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_server_answers_keda_and_prometheus(queue: Queue, tmp_path: Path) -> None:
    queue.add_many("clips", [{"n": n} for n in range(3)])
    argv = [sys.executable, "-m", "onerow", "scale", "--store", queue.url, "--slots", "2", "--serve", "0"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(argv, stderr=log)
    try:
        url = until(
            lambda: "".join(re.findall(r"http://127\.0\.0\.1:\d+", (tmp_path / "log").read_text())), "the address"
        )
        code, text = get(f"{url}/scale")
        answer = json.loads(text)
        assert (code, answer["desired_workers"], answer["phases"]["clips.video"]["ready"]) == (200, 2, 3)
        assert json.loads(get(f"{url}/scale/clips")[1])["desired_workers"] == 2
        assert get(f"{url}/scale/none")[0] == 404
        assert get(f"{url}/other")[0] == 404
        assert get(f"{url}/healthz") == (200, "ok\n")
        assert "\nonerow_desired_workers 2\n" in get(f"{url}/metrics")[1]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_kedas_value_is_above_zero_while_a_lease_lives(queue: Queue) -> None:
    """Else KEDA scales to zero and ends the last long task."""
    queue.add("clips", {})
    lease(queue, 1)
    for mode in ("leases", "inflight", "visible"):
        settings: Any = ScaleSettings(mode=mode, scale_in_after=0.0)
        assert Scaler(queue, settings).decide(ScaleState(zero_since=0.0)).answer()["desired_workers"] == 1


def test_with_a_token_only_its_bearers_are_answered(queue: Queue) -> None:
    answers = ScaleAnswers(lambda pipeline, state: Scaler(queue, ScaleSettings()).decide(state))
    server = make_server("127.0.0.1", 0, answers, token="비밀")
    server.start()
    try:
        assert get(f"{server.url}/scale")[0] == 401
        assert get(f"{server.url}/metrics", "other")[0] == 401
        assert get(f"{server.url}/healthz")[0] == 200
    finally:
        server.close()
    server = make_server("127.0.0.1", 0, answers, token="secret")
    server.start()
    try:
        assert get(f"{server.url}/scale", "secret")[0] == 200
    finally:
        server.close()


def test_an_unavailable_store_is_no_number(queue: Queue) -> None:
    def fail(pipeline: str, state: ScaleState) -> Any:
        raise StoreUnavailable("the store is away")

    server = make_server("127.0.0.1", 0, ScaleAnswers(fail))
    server.start()
    try:
        assert get(f"{server.url}/scale") == (503, "the store is away\n")
    finally:
        server.close()
