"""`onerow deploy`: the printed files are valid for their tools, and their commands are commands of onerow."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import kubernetes_validate
import psycopg
import pymongo
import pytest
import yaml
from bson import json_util

from conftest import start
from onerow import Pipeline, Queue
from onerow.cli.main import COMMANDS, main
from onerow.cli.maintain.deploy import KINDS, keda_filter, keda_sql, render
from onerow.core.errors import BadInput
from onerow.engine.output.masking import Masker
from onerow.scaling.aws_lambda import VARIABLES
from onerow.wiring import open_store
from tests.scaling.conftest import lease
from tests.servers import CACHE, Missing

QUEUE_URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/videos"
KEDAS = [
    {"via": "metrics-api"},
    {"via": "postgresql", "phases": ("clips.video", "it's.영상")},
    {"via": "mongodb", "phases": ("clips.video",)},
    {"via": "aws-sqs-queue", "sqs": QUEUE_URL},
]


def documents(text: str) -> list[Any]:
    assert "{{" not in text
    return list(yaml.safe_load_all(text))


def check_command(words: list[str]) -> dict[str, Any]:
    """Parse a command line of onerow as onerow does, without running it; return its options."""
    assert words[0] in COMMANDS
    with main.make_context("onerow", words, resilient_parsing=False) as context:
        name, command, rest = main.resolve_command(context, words)
        assert command is not None
        with command.make_context(name, rest, parent=context) as parsed:
            return parsed.params


def test_every_kind_is_printed_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in KINDS:
        with pytest.raises(SystemExit) as ended:
            main(["deploy", kind, "media.app:queue", "--max", "5"], prog_name="onerow")
        assert not ended.value.code
        assert "media-app" in capsys.readouterr().out


# ── one host ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_unit_is_valid_for_systemd(tmp_path: Path) -> None:
    def program() -> str:
        if (found := shutil.which("systemd-analyze")) is None:
            raise Missing("systemd-analyze is missing: apt install systemd")
        return found

    analyze = start(program, optional=sys.platform != "linux")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "onerow").symlink_to(sys.executable)
    unit = tmp_path / "media.service"
    unit.write_text(render("systemd", "media.app", folder=str(tmp_path), user="root", grace="2m"))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=900)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "media.service" in line]) == (0, [])


def test_the_unit_drains_within_its_stop_timeout() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(render("systemd", "media.app", grace="2m", slots=4))
    service = unit["Service"]
    assert (service["Type"], service["KillMode"], service["TimeoutStopSec"]) == ("notify", "mixed", "130")
    words = service["ExecStart"].split()
    assert words[0] == "/srv/media-app/.venv/bin/onerow"
    options = check_command(words[1:])
    assert (options["processes"], options["concurrency"], options["grace"]) == ((1, 8), 4, "2m")


def test_a_grace_with_spaces_is_one_word_in_every_file() -> None:
    unit = render("systemd", "media.app", grace="1 h 5 min")
    assert "\nTimeoutStopSec=3910\n" in unit
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert check_command(line.split()[1:])["grace"] == "1h5m"
    (worker, *_) = documents(render("k8s", "media.app", grace="5 min"))
    assert check_command(worker["spec"]["template"]["spec"]["containers"][0]["args"])["grace"] == "5m"


def texts(found: Any, key: str) -> Iterator[Any]:
    """Yield the values of a key, wherever it is."""
    if isinstance(found, dict):
        for name, value in found.items():
            if name == key:
                yield value
            yield from texts(value, key)
    elif isinstance(found, list):
        for each in found:
            yield from texts(each, key)


@pytest.mark.parametrize("name", ["on", "yes", "no", "null", "true", "y", "n", "e1"])
def test_names_that_yaml_reads_as_other_values_stay_texts(name: str) -> None:
    options: dict[str, Any] = {"name": name, "namespace": "123", "image": "456", "prefix": name, "target": "asg:1 "}
    for kind in ("compose", "k8s", "keda", "lambda"):
        for job in (False, True) if kind == "keda" else (False,):
            found = documents(render(kind, "media.app", job=job, **options))
            assert {type(value) for key in ("name", "image", "namespace") for value in texts(found, key)} <= {str}
            if kind == "k8s":
                for each in found:
                    kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
                assert set(texts(found, "namespace")) == {"123"}
            if kind == "lambda":
                (variables,) = texts(found, "Variables")
                assert (variables["ONEROW_SCALE_PREFIX"], variables["ONEROW_SCALE_TARGET"]) == (name, "asg:1 ")


@pytest.mark.parametrize("option", ["--max", "--slots"])
def test_numbers_that_no_tool_could_run_are_rejected(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["deploy", "k8s", "media.app", option, "10001"], prog_name="onerow")
    assert ended.value.code
    assert f"'{option}': 10001 is not in the range 1<=x<=10000" in capsys.readouterr().err


def test_the_image_has_no_root_and_its_command_is_a_worker() -> None:
    text = render("docker", "media.app:queue", slots=4)
    steps = [line.partition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    names = [name for name, _, _ in steps]
    assert names[0] == "FROM"
    user = next(rest for name, _, rest in steps if name == "USER")
    assert user == "10001:10001"
    assert names.index("USER") > max(nth for nth, name in enumerate(names) if name == "RUN")
    command = {name: json.loads(rest) for name, _, rest in steps if name in ("ENTRYPOINT", "CMD")}
    assert command["ENTRYPOINT"] == ["onerow"]
    assert check_command(command["CMD"])["app"] == "media.app:queue"
    health = next(rest for name, _, rest in steps if name == "HEALTHCHECK")
    compile(json.loads(health[health.index("[") :])[2], "health", "exec")


@pytest.mark.parametrize(
    "files, installed",
    [
        ({}, ["onerow[postgres,mongo,sqs,aws]"]),
        ({"requirements.txt": ""}, ["onerow[postgres,mongo,sqs,aws]", "-r requirements.txt"]),
        ({"pyproject.toml": "[tool.ruff]\nline-length = 99\n"}, ["onerow[postgres,mongo,sqs,aws]"]),
        ({"pyproject.toml": "[project]\nname = 'media'\n"}, ["onerow[postgres,mongo,sqs,aws]", "."]),
    ],
    ids=["none", "requirements", "settings only", "project"],
)
def test_the_image_installs_what_the_project_has(files: dict[str, str], installed: list[str], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (run,) = [line for line in render("docker", "app").splitlines() if line.startswith("RUN pip ")]
    script = 'pip() { echo "$@"; }; ' + run.removeprefix("RUN ")
    done = subprocess.run(["sh", "-ec", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"install {what}" for what in installed]


def test_compose_starts_workers_after_the_database_is_migrated() -> None:
    (found,) = documents(render("compose", "media.app", grace="45s"))
    services = found["services"]
    assert set(services) == {"db", "migrate", "worker"}
    assert check_command(services["worker"]["command"])["processes"] == (1, 8)
    check_command(services["migrate"]["command"])
    assert services["worker"]["stop_grace_period"] == "55s"
    assert services["worker"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert "password" not in str(services["db"]["environment"]["POSTGRES_PASSWORD"]).lower().replace(
        "postgres_password", ""
    )
    assert "ports" not in services["db"]  # it is reached from the other containers only


def test_a_worker_of_compose_signs_in_with_any_password(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    password = "p@ss/w:rd?#%41 $x'\"é"
    (found,) = documents(render("compose", "media.app"))
    word = found["services"]["db"]["environment"]["POSTGRES_PASSWORD"]
    for name, value in found["services"]["worker"]["environment"].items():
        monkeypatch.setenv(name, value.replace(word, password))
    assert (os.environ["ONEROW_STORE"], word) == (
        "postgresql://onerow@db/onerow",
        "${POSTGRES_PASSWORD:?write it to .env}",
    )
    with psycopg.connect(postgres_url) as connection:
        assert connection.info.password == password
    assert Masker.of_environment().text(f"no entry for {password}") == "no entry for ***"


# ── Kubernetes ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_manifests_are_valid_for_kubernetes() -> None:
    found = documents(render("k8s", "media.app", grace="1h", slots=3, least=0, most=20))
    assert [each["kind"] for each in found] == ["Deployment", "Deployment", "Service"]
    for each in found:
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
    worker, scale, service = found
    pod = worker["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 3610
    assert "replicas" not in worker["spec"]
    options = check_command(pod["containers"][0]["args"])
    assert (options["health"], options["concurrency"], options["grace"]) == ("0.0.0.0:8081", 3, "1h")
    probes = [
        pod["containers"][0][name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")
    ]
    assert probes == ["/readyz", "/readyz", "/livez"]
    options = check_command(scale["spec"]["template"]["spec"]["containers"][0]["args"])
    assert (options["serve"], options["slots"], options["minimum"], options["maximum"]) == ("0.0.0.0:8082", 3, 0, 20)
    assert service["spec"]["selector"] == scale["spec"]["template"]["metadata"]["labels"]


CHECK_KEDA = """
const keda = require('@kubernetes-models/keda/keda.sh/v1alpha1');
for (const found of JSON.parse(require('fs').readFileSync(0, 'utf8'))) {
  if (found.apiVersion !== 'keda.sh/v1alpha1') throw new Error('not KEDA: ' + found.kind);
  new keda[found.kind](found).validate();
}
"""


@pytest.fixture(scope="module")
def keda_schemas() -> Path:
    def find() -> Path:
        if not (CACHE / "keda" / ".ready").exists() or shutil.which("node") is None:
            raise Missing("KEDA's schemas are missing: make servers")
        return CACHE / "keda"

    return start(find)


def validate_keda(schemas: Path, found: list[Any]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["node", "-e", CHECK_KEDA], cwd=schemas, input=json.dumps(found), capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("job", [False, True])
@pytest.mark.parametrize("options", KEDAS, ids=lambda options: options["via"])
def test_the_manifests_are_valid_for_keda(options: dict[str, Any], job: bool, keda_schemas: Path) -> None:
    found = documents(render("keda", "media.app", least=0, most=20, job=job, **options))
    assert [each["kind"] for each in found] == ["TriggerAuthentication", "ScaledJob" if job else "ScaledObject"]
    done = validate_keda(keda_schemas, found)
    assert done.returncode == 0, done.stderr
    for trigger in found[1]["spec"]["triggers"]:
        assert all(type(value) is str for value in trigger["metadata"].values())
    if job:
        (container,) = found[1]["spec"]["jobTargetRef"]["template"]["spec"]["containers"]
        assert check_command(container["args"])["until_idle"] is True
        assert found[1]["spec"]["rollout"] == {"strategy": "gradual"}  # else a change of the file ends running Jobs


def test_kedas_schemas_find_a_mistake(keda_schemas: Path) -> None:
    found = documents(render("keda", "media.app"))
    found[1]["spec"]["maxReplicaCount"] = "many"
    assert "maxReplicaCount" in validate_keda(keda_schemas, found).stderr


def test_keda_reads_the_need_at_the_server_of_the_manifests() -> None:
    _, _, service = documents(render("k8s", "media.app", namespace="work"))
    sign_in, scaled = documents(render("keda", "media.app", namespace="work"))
    (trigger,) = scaled["spec"]["triggers"]
    metadata = service["metadata"]
    assert trigger["metadata"]["url"] == f"http://{metadata['name']}.{metadata['namespace']}.svc:8082/scale"
    assert trigger["metadata"]["valueLocation"] == "desired_workers"
    assert (trigger["metricType"], trigger["metadata"]["targetValue"]) == ("AverageValue", "1")
    assert trigger["authenticationRef"]["name"] == sign_in["metadata"]["name"]


@pytest.fixture(params=["postgres_url", "mongo_url"])
def served(request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A queue with 3 due tasks, 2 running, 1 not due and 1 elsewhere."""
    queue = Queue(open_store(request.getfixturevalue(request.param)))
    clips, other = Pipeline("clips"), Pipeline("other")
    for pipeline in (clips, other):
        pipeline.phase(name="video")(lambda job: None)
    queue.publish(clips, other)
    queue.add_many(clips, [{"n": n} for n in range(3)], limit_key="a")
    queue.add_many(clips, [{"n": n} for n in range(2)], priority=3)
    queue.add(clips, {}, run_at="2100-01-01T00:00:00Z")
    queue.add(other, {})
    lease(queue, 2)
    yield queue
    queue.close()


def test_the_queries_for_kedas_own_scalers_count_leases_and_due_tasks(
    served: Queue, request: pytest.FixtureRequest
) -> None:
    if served.url.startswith("postgresql"):
        with psycopg.connect(request.getfixturevalue("postgres_url")) as connection:
            for places, count in (([("clips", "video")], 5), ([("clips", "video"), ("other", "video")], 6)):
                row = connection.execute(keda_sql(places, 100).encode()).fetchone()
                assert row == (count,)
            assert connection.execute(keda_sql([("it's", "  영상")], 9).encode()).fetchone() == (0,)
    else:
        with pymongo.MongoClient[dict[str, Any]](request.getfixturevalue("mongo_url")) as client:
            tasks = client.get_default_database()["task_queue"]
            assert tasks.count_documents(keda_filter([("clips", "video")])) == 5
            assert tasks.count_documents(keda_filter([("clips", "video"), ("other", "video")])) == 6


def kedas_count(text: str, url: str) -> int:
    """Return the number that KEDA reads by the trigger of a manifest, at the server of a URL."""
    (_, scaled) = documents(text)
    metadata = scaled["spec"]["triggers"][0]["metadata"]
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            row = connection.execute(metadata["query"].encode()).fetchone()
            assert row is not None
            return int(row[0])
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        tasks = client[metadata["dbName"]][metadata["collection"]]
        return tasks.count_documents(json_util.loads(metadata["query"]))


@pytest.mark.parametrize("kind", ["postgresql", "mongodb"])
def test_the_queries_read_the_schema_or_database_that_is_given(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "postgresql":
        plain, schema = request.getfixturevalue("postgres_url"), "Work_2"
        store = f"{plain}{'&' if '?' in plain else '?'}schema={schema}"
    else:
        plain = store = request.getfixturevalue("mongo_url")
        schema = urlsplit(plain).path.strip("/")
    queue = Queue(open_store(store))
    clips = Pipeline("clips")
    clips.phase(name="video")(lambda job: None)
    queue.publish(clips)
    queue.add_many(clips, [{"n": n} for n in range(3)])
    lease(queue, 1)
    text = render("keda", "media.app", via=kind, phases=("clips.video",), schema=schema)
    assert kedas_count(text, plain) == 3
    queue.close()


@pytest.mark.parametrize("job", [False, True])
@pytest.mark.parametrize("options", KEDAS, ids=lambda options: options["via"])
def test_the_secret_that_keda_reads_is_made_in_its_namespace(options: dict[str, Any], job: bool) -> None:
    texts = [
        render("k8s", "media.app", namespace="work"),
        render("keda", "media.app", namespace="work", job=job, **options),
    ]
    made = dict[tuple[str, str], list[str]]()
    for line in "\n".join(texts).splitlines():
        if "kubectl create secret generic" in line:
            words = line.partition("kubectl ")[2].split()
            keys = [word.removeprefix("--from-literal=").partition("=")[0] for word in words[5:]]
            assert words[4] == "--namespace"
            made[words[3], words[5]] = keys
    sign_in, scaled = documents(texts[1])
    (reference,) = sign_in["spec"]["secretTargetRef"]
    assert reference["key"] in made[reference["name"], sign_in["metadata"]["namespace"]]
    assert sign_in["metadata"]["namespace"] == scaled["metadata"]["namespace"] == "work"


# ── Lambda ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("target", ["asg:encoders", "ecs:media/encoders"])
def test_the_template_makes_a_stack_whose_function_has_the_least_rights(aws: str, target: str) -> None:
    text = render("lambda", "media.app", target=target, sqs=QUEUE_URL, slots=2)
    (template,) = documents(text)
    rights = template["Resources"]["Role"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
    wide = [statement["Action"] for statement in rights if statement["Resource"] == "*"]
    assert wide == ([["autoscaling:DescribeAutoScalingGroups"]] if target.startswith("asg") else [])
    function = template["Resources"]["Function"]["Properties"]
    assert set(function["Environment"]["Variables"]) <= set(VARIABLES)
    assert function["LoggingConfig"]["ApplicationLogLevel"] == "INFO"  # else the decisions are in no log
    module, _, name = function["Handler"].rpartition(".")
    assert callable(getattr(__import__(module, fromlist=[name]), name))
    stacks, iam = boto3.client("cloudformation"), boto3.client("iam")
    create_stack(stacks, text)
    (role,) = iam.list_roles()["Roles"]
    assert not iam.list_policies(Scope="Local")["Policies"]  # for a function in a VPC only
    policy = iam.get_role_policy(RoleName=role["RoleName"], PolicyName="scale")["PolicyDocument"]
    assert all(action in str(policy) for statement in rights for action in statement["Action"])
    for client in (iam, stacks):
        client.close()


def create_stack(stacks: Any, text: str, **parameters: str) -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="code", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    s3.put_object(Bucket="code", Key="onerow.zip", Body=b"PK\x05\x06" + bytes(18))
    s3.close()
    given = {"CodeBucket": "code", "Store": "postgresql://db/onerow"} | parameters
    stacks.create_stack(
        StackName="scale",
        TemplateBody=text,
        Capabilities=["CAPABILITY_IAM"],
        Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()],
    )
    (stack,) = stacks.describe_stacks(StackName="scale")["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"


def test_the_function_runs_in_the_subnets_that_are_given(aws: str) -> None:
    stacks, iam, ec2 = boto3.client("cloudformation"), boto3.client("iam"), boto3.client("ec2")
    (one, two, *_) = [subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"]]
    group = ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
    create_stack(stacks, render("lambda", "media.app"), SubnetIds=f"{one},{two}", SecurityGroupIds=group)
    functions = boto3.client("lambda")
    network = functions.get_function_configuration(FunctionName="media-app-scale")["VpcConfig"]
    assert (network["SubnetIds"], network["SecurityGroupIds"]) == ([one, two], [group])
    # moto does not attach the policies of a role in a template.
    (policy,) = iam.list_policies(Scope="Local")["Policies"]
    assert "Network" in policy["PolicyName"]
    for client in (stacks, iam, ec2, functions):
        client.close()


def test_the_code_of_the_function_is_packed_for_its_runtime() -> None:
    text = render("lambda", "media.app")
    (template,) = documents(text)
    function = template["Resources"]["Function"]["Properties"]
    install, pack = [line.removeprefix("#").split() for line in text.splitlines() if line.startswith("#   ")]
    options = list(pairwise(install))
    assert f"python{dict(options)['--python-version']}" == function["Runtime"]
    platforms = [value for option, value in options if option == "--platform"]
    assert platforms
    assert all(platform.endswith(*function["Architectures"]) for platform in platforms)
    # pip refuses --platform without it, and a source distribution would be compiled for this machine.
    assert "--only-binary=:all:" in install
    assert pack == ["(cd", "package", "&&", "zip", "-qr", "../onerow.zip", ".)"]  # the packages at the top of the zip


@pytest.mark.parametrize(
    "kind, options",
    [
        ("k8s", {"name": "Media App"}),
        ("k8s", {"namespace": "a\nb"}),
        ("systemd", {"folder": "srv/x"}),
        ("systemd", {"folder": "/srv/x y"}),
        ("systemd", {"user": "root\nExecStartPre=x"}),
        ("k8s", {"image": "x # y"}),
        ("k8s", {"image": "x/영상"}),
        ("k8s", {"least": 9, "most": 8}),
        ("k8s", {"grace": "soon"}),
        ("systemd", {"most": 257}),
        ("compose", {"most": 257}),
        ("keda", {"via": "postgresql"}),
        ("keda", {"via": "mongodb", "phases": ("clips",)}),
        ("keda", {"via": "aws-sqs-queue"}),
        ("keda", {"via": "aws-sqs-queue", "sqs": "videos"}),
        ("keda", {"via": "postgresql", "phases": ("clips.video",), "schema": 'x"; DROP'}),
        ("lambda", {"target": "vm:x"}),
        ("lambda", {"target": "asg:x\n"}),
        ("lambda", {"sqs": "http://x"}),
        ("lambda", {"prefix": "Video-1"}),
    ],
)
def test_values_that_would_break_a_file_are_rejected(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as found:
        render(kind, "media.app", **options)
    assert found.value.field


def test_an_app_that_is_no_module_is_rejected() -> None:
    for app in (
        "app.py; rm",
        "a b",
        "",
        "1app",
        "app.py",
        "app.py:queue",
        "a..b",
        "a.",
        "it's",
        '"a"',
        "a:b:c",
        "src/a",
    ):
        with pytest.raises(BadInput, match=re.escape(repr(app))):
            render("docker", app)


def test_a_module_with_any_letters_is_deployed_under_a_name_that_its_tool_accepts() -> None:
    with pytest.raises(BadInput, match="영상") as found:
        render("k8s", "영상.앱:대기열")
    assert (found.value.field, found.value.fix) == ("name", "give --name")
    for kind in ("systemd", "docker", "compose", "k8s"):
        assert "영상.my-app:대기열" in render(kind, "영상.my-app:대기열", name="media")
    (found_compose,) = documents(render("compose", "영상.my-app", name="media"))
    assert check_command(found_compose["services"]["worker"]["command"])["app"] == "영상.my-app"
