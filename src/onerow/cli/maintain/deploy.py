"""`onerow deploy`: print files that run workers: a systemd unit, an image, Compose, Kubernetes, KEDA, Lambda."""

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import click

from onerow.cli.start.worker_pool import MOST_PROCESSES
from onerow.core.durations import parse_duration, spell_duration
from onerow.core.errors import BadInput
from onerow.core.scaling import DEFAULT_SLOTS, MOST

_FILES = files("onerow.cli.deploy_files")
_MODULE = r"[^\W\d][\w-]*"
_NAME = r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?"
_LEAST_MARGIN = 10  # seconds from the end of the grace period to the kill

KINDS = ("systemd", "docker", "compose", "k8s", "keda", "lambda")
VIA = ("metrics-api", "postgresql", "mongodb", "aws-sqs-queue")


@click.command("deploy")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("app", metavar="APP")
@click.option("--name", help="Name of the service, image and objects. Default: the module of APP.")
@click.option("--min", "least", type=click.IntRange(0), default=1, show_default=True, help="Least workers.")
@click.option("--max", "most", type=click.IntRange(1, MOST), default=8, show_default=True, help="Most workers.")
@click.option(
    "--slots",
    type=click.IntRange(1, MOST),
    default=DEFAULT_SLOTS,
    show_default=True,
    help="Concurrent tasks of one worker.",
)
@click.option("--grace", default="30s", show_default=True, help="Time for running work to end after a stop.")
@click.option("--folder", help="systemd: the project's folder, with .venv. Default: /srv/NAME.")
@click.option("--user", default="onerow", show_default=True, help="systemd: the user that runs it.")
@click.option("--image", help="The container image. Default: NAME:latest.")
@click.option("--namespace", default="default", show_default=True, help="k8s, keda: the namespace.")
@click.option(
    "--via", type=click.Choice(VIA), default="metrics-api", show_default=True, help="keda: where KEDA reads the need."
)
@click.option("--job", is_flag=True, help="keda: a ScaledJob, for work that takes long, instead of a ScaledObject.")
@click.option("--phases", multiple=True, help="keda via postgresql or mongodb: pipeline.phase to count; repeatable.")
@click.option(
    "--schema",
    default="onerow",
    show_default=True,
    help="keda via postgresql: the store's schema; via mongodb: its database.",
)
@click.option("--target", default="asg:workers", show_default=True, help="lambda: what it scales.")
@click.option("--sqs", metavar="URL", help="keda, lambda: a queue whose messages count too.")
@click.option("--prefix", default="video", show_default=True, help="lambda: the first part of the answer's fields.")
def command(kind: str, app: str, **options: Any) -> None:
    """Print a file that runs the workers of APP (module[:queue]); write it with: onerow deploy KIND APP > FILE

    systemd: a unit with notify and watchdog. docker: an image without root. compose: with PostgreSQL. k8s: a Deployment
    that drains, with probes, and the server of the decision. keda: a ScaledObject or ScaledJob. lambda: a CloudFormation
    template with the least rights.
    """
    click.echo(render(kind, app, **options), nl=False)


def render(
    kind: str,
    app: str,
    *,
    name: str | None = None,
    least: int = 1,
    most: int = 8,
    slots: int = DEFAULT_SLOTS,
    grace: str = "30s",
    folder: str | None = None,
    user: str = "onerow",
    image: str | None = None,
    namespace: str = "default",
    via: str = "metrics-api",
    job: bool = False,
    phases: tuple[str, ...] = (),
    schema: str = "onerow",
    target: str = "asg:workers",
    sqs: str | None = None,
    prefix: str = "video",
) -> str:
    """Return the text of the file; raise BadInput for values that would not work there."""
    module = app.partition(":")[0]
    if not re.fullmatch(rf"{_MODULE}(\.{_MODULE})*(:[^\W\d]\w*)?", app) or module.endswith(".py"):
        raise BadInput(f"{app!r} is not an app", fix="write module or module:queue", field="app")
    if name is None:
        name = re.sub(r"[^a-z0-9]+", "-", module.lower()).strip("-")
        if not re.fullmatch(_NAME, name):
            raise BadInput(f"{app!r} makes no name for a service", fix="give --name", field="name")
    _check("name", name, _NAME, "small letters, digits and '-', at most 42")
    _check("namespace", namespace, r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "small letters, digits and '-'")
    _check("user", user, r"[a-z_][-a-z0-9_]*", "a user name")
    _check("folder", folder or "/", r"/[\w./+-]*", "an absolute path without spaces")
    _check("image", image or name, r"[A-Za-z0-9][\w./:@-]*", "an image's name")
    _check("schema", schema, r"[A-Za-z_][\w-]*", "the name of a schema or database")
    _check("prefix", prefix, r"[a-z][a-z0-9_]*", "small letters, digits and '_'")
    if least > most:
        raise BadInput(f"--min {least} is above --max {most}", fix="raise --max", field="min")
    if kind in ("systemd", "compose") and most > MOST_PROCESSES:
        raise BadInput(
            f"--max {most}: one host runs at most {MOST_PROCESSES} worker processes", fix="lower --max", field="max"
        )
    run_on = parse_duration(grace, "--grace")
    values: dict[str, Any] = {
        "app": app,
        "name": name,
        "least": least,
        "most": most,
        "processes": f"{max(1, least)}..{most}" if most > max(1, least) else str(most),
        "slots": slots,
        "grace": spell_duration(run_on),  # without the spaces that '5 min' has
        "stop_seconds": int(run_on.total_seconds()) + _LEAST_MARGIN,
        "folder": folder or f"/srv/{name}",
        "user": user,
        "image": image or f"{name}:latest",
        "namespace": namespace,
        "requirement": "onerow[postgres,mongo,sqs,aws]",
        "target": target,
        "prefix": prefix,
    }
    match kind:
        case "systemd":
            return _filled("worker.service", values)
        case "docker":
            return _filled("Dockerfile", values)
        case "compose" | "k8s":
            return _filled(f"{kind}.yaml", values)
        case "keda":
            return _filled("scaledjob.yaml" if job else "keda.yaml", values | _keda(values, via, phases, schema, sqs))
    return _filled("lambda.yaml", values | _lambda(target, sqs))


def _check(field: str, value: str, pattern: str, form: str) -> None:
    if not re.fullmatch(pattern, value, re.NOFLAG if field == "folder" else re.ASCII):
        raise BadInput(f"--{field} {value!r} can't be used in this file", fix=f"give {form}", field=field)


def _filled(file: str, values: dict[str, Any]) -> str:
    text = _FILES.joinpath(file).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: str(values[found[1]]), text)


def _keda(values: dict[str, Any], via: str, phases: tuple[str, ...], schema: str, sqs: str | None) -> dict[str, str]:
    """Return the triggers and what they need to sign in."""
    name, namespace = values["name"], values["namespace"]
    sign_in = {
        "auth_parameter": "token",
        "auth_secret": name,
        "auth_key": "scale-token",
        "secret": f"# KEDA reads the token in the secret {name} of the namespace {namespace}.",
    }
    url = f"http://{name}-scale.{namespace}.svc:8082/scale"
    api = _trigger(
        "metrics-api",
        name,
        targetValue="1",
        activationTargetValue="0",
        url=url,
        valueLocation="desired_workers",
        authMode="bearer",
    )
    if via == "metrics-api":
        return sign_in | {"triggers": api}
    if via == "aws-sqs-queue":
        if sqs is None:
            raise BadInput("give the queue: --sqs URL", field="sqs")
        region = re.search(r"sqs\.([a-z0-9-]+)\.amazonaws", sqs)
        if region is None:
            raise BadInput(f"{sqs!r} names no region", fix="give the URL that AWS shows", field="sqs")
        # Messages in flight are leases already, which the other trigger counts; the larger of both is used.
        queue = _trigger(
            "aws-sqs-queue",
            "",
            queueURL=sqs,
            awsRegion=region[1],
            queueLength=str(values["slots"]),
            activationQueueLength="0",
            scaleOnInFlight="false",
            identityOwner="operator",
        )
        return sign_in | {"triggers": f"{queue}\n{api}"}
    places = [tuple(phase.split(".", 1)) for phase in phases if "." in phase]
    if not places or len(places) < len(phases):
        raise BadInput(
            f"via {via} the phases must be named",
            fix="give --phases PIPELINE.PHASE for each phase with code",
            field="phases",
        )
    if via == "postgresql":
        query = keda_sql(places, int(values["slots"]) * int(values["most"]) + 1, schema)
        trigger = _trigger(
            "postgresql",
            name,
            query=query,
            targetQueryValue=str(values["slots"]),
            activationTargetQueryValue="0",
        )
        return _connection("connection", "postgresql", values) | {"triggers": trigger}
    trigger = _trigger(
        "mongodb",
        name,
        dbName=schema,
        collection="task_queue",
        query=json.dumps(keda_filter(places), ensure_ascii=False),
        queryValue=str(values["slots"]),
        activationQueryValue="0",
    )
    return _connection("connectionString", "mongodb", values) | {"triggers": trigger}


def _connection(parameter: str, scheme: str, values: dict[str, Any]) -> dict[str, str]:
    """Return how KEDA signs in to the store: with a URL of its own, which has no options that only onerow knows."""
    secret = f"{values['name']}-keda"
    return {
        "auth_parameter": parameter,
        "auth_secret": secret,
        "auth_key": "connection",
        "secret": "# Before, with a user that may only read, and without onerow's own options such as ?schema=…:\n"
        f"# kubectl create secret generic {secret} --namespace {values['namespace']} "
        f"--from-literal=connection='{scheme}://user:password@host/database'",
    }


def keda_sql(places: Sequence[tuple[str, ...]], bound: int, schema: str = "onerow") -> str:
    """Return the query for KEDA's postgresql trigger: leases and due tasks of some phases, counted up to a bound.

    It knows no limits, rates or pauses; /scale does.
    """
    quoted = ", ".join("(" + ", ".join("'" + name.replace("'", "''") + "'" for name in place) + ")" for place in places)
    text = re.sub(r"\s+", " ", _FILES.joinpath("kedaquery.sql").read_text(encoding="utf-8")).strip()
    text = text.replace("{{bound}}", str(bound)).replace("{{schema}}", f'"{schema}"')
    return text.replace("{{places}}", quoted)


def keda_filter(places: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Return the filter for KEDA's mongodb trigger, which counts the documents that match."""
    due = {"$expr": {"$lte": ["$run_at", "$$NOW"]}}
    return {
        "$or": [
            case
            for pipeline, phase in places
            for case in (
                {"status": "processing", "pipeline": pipeline, "type": phase},
                {"status": "waiting", "awaiting": None, "pipeline": pipeline, "type": phase, **due},
            )
        ]
    }


def _trigger(kind: str, sign_in: str, **metadata: str) -> str:
    lines = [f"    - type: {kind}", *(["      metricType: AverageValue"]), "      metadata:"]
    # A JSON text is a YAML text, whatever characters it has.
    lines += [f"        {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in metadata.items()]
    return "\n".join(lines + ([f"      authenticationRef: {{name: {json.dumps(sign_in)}}}"] if sign_in else []))


def _lambda(target: str, sqs: str | None) -> dict[str, str]:
    """Return the least rights for the target, and the variable of the queue."""
    kind, _, place = target.partition(":")
    arn = "arn:${AWS::Partition}:"
    here = "${AWS::Region}:${AWS::AccountId}:"
    if kind == "asg" and re.fullmatch(r"[\w.+=@ -]+", place):
        group = f"{arn}autoscaling:{here}autoScalingGroup:*:autoScalingGroupName/{place}"
        # AWS has no narrower resource for descriptions.
        rights = [(["autoscaling:DescribeAutoScalingGroups"], "*"), (["autoscaling:SetDesiredCapacity"], group)]
    elif kind == "ecs" and re.fullmatch(r"[\w-]+/[\w-]+", place):
        service = f"{arn}ecs:{here}service/{place}"
        rights = [(["ecs:DescribeServices", "ecs:UpdateService"], service)]
    else:
        raise BadInput(
            f"{target!r} is not a group of workers", fix="write asg:GROUP or ecs:CLUSTER/SERVICE", field="target"
        )
    variable = ""
    if sqs is not None:
        found = re.fullmatch(r"https://sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(\d+)/([\w.-]+)", sqs)
        if found is None:
            raise BadInput(f"{sqs!r} is no URL of a queue", fix="give the URL that AWS shows", field="sqs")
        rights.append((["sqs:GetQueueAttributes"], f"{arn}sqs:{found[1]}:{found[2]}:{found[3]}"))
        variable = f'          ONEROW_SCALE_SQS: "{sqs}"'
    lines = [
        f"              - Effect: Allow\n                Action: [{', '.join(actions)}]\n"
        f'                Resource: {{"Fn::Sub": "{resource}"}}'
        if resource != "*"
        else f'              - Effect: Allow\n                Action: [{", ".join(actions)}]\n                Resource: "*"'
        for actions, resource in rights
    ]
    return {"rights": "\n".join(lines), "sqs_variable": variable}
