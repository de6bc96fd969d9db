"""Targets of a scaling decision, by URL: asg:NAME, ecs:CLUSTER/SERVICE."""

import re
from urllib.parse import parse_qsl

from onerow.core.errors import BadInput
from onerow.scaling.aws_client import AwsClient, reading
from onerow.scaling.scaler import Bounds, Target

FORMS = "asg:GROUP or ecs:CLUSTER/SERVICE, with ?region=eu-central-1 if AWS_REGION is not set"


class AutoScalingGroup:
    """An EC2 Auto Scaling group. Busy instances protect themselves (see `protection`), so a smaller group ends idle ones."""

    def __init__(self, group: str, client: AwsClient) -> None:
        self._group = group
        self._client = client

    @property
    def name(self) -> str:
        return f"asg:{self._group}"

    def bounds(self) -> Bounds:
        found = self._client.call("describe_auto_scaling_groups", AutoScalingGroupNames=[self._group])
        with reading("autoscaling"):
            if groups := found["AutoScalingGroups"]:
                return Bounds(groups[0]["DesiredCapacity"], groups[0]["MinSize"], groups[0]["MaxSize"])
        raise BadInput(
            f"there is no Auto Scaling group {self._group!r}", fix="check its name and the region", field="apply"
        )

    def apply(self, workers: int) -> None:
        # The decision has its own cool-downs.
        self._client.call(
            "set_desired_capacity", AutoScalingGroupName=self._group, DesiredCapacity=workers, HonorCooldown=False
        )


class EcsService:
    """An ECS service. Busy tasks protect themselves (see `protection`), so a smaller service ends idle ones."""

    def __init__(self, cluster: str, service: str, client: AwsClient) -> None:
        self._cluster = cluster
        self._service = service
        self._client = client

    @property
    def name(self) -> str:
        return f"ecs:{self._cluster}/{self._service}"

    def bounds(self) -> Bounds:
        found = self._client.call("describe_services", cluster=self._cluster, services=[self._service])
        with reading("ecs"):
            for service in found["services"]:
                if service["status"] == "ACTIVE":
                    return Bounds(service["desiredCount"])
        raise BadInput(
            f"there is no active ECS service {self._service!r} in the cluster {self._cluster!r}",
            fix="check the names and the region",
            field="apply",
        )

    def apply(self, workers: int) -> None:
        self._client.call("update_service", cluster=self._cluster, service=self._service, desiredCount=workers)


def open_target(url: str) -> Target:
    """Return the target at a URL, without connecting."""
    kind, _, rest = url.partition(":")
    place, _, query = rest.partition("?")
    options = dict(parse_qsl(query))
    if unknown := sorted(set(options) - {"region", "endpoint_url"}):
        raise BadInput(f"{url!r}: unknown option {unknown[0]!r}", fix=f"write it like {FORMS}", field="apply")
    if kind == "asg" and place:
        return AutoScalingGroup(place, AwsClient("autoscaling", **options))
    cluster, _, service = place.partition("/")
    if kind == "ecs" and cluster and service and "/" not in service:
        return EcsService(cluster, service, AwsClient("ecs", **options))
    raise BadInput(f"{url!r} is not a group of workers", fix=f"write it like {FORMS}", field="apply")


def sqs_client(queue_url: str) -> AwsClient:
    """Return a client for a queue, in the region that its URL names."""
    found = re.match(r"https://sqs(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com", queue_url)
    return AwsClient("sqs", region=found[1] if found else None)


def sqs_counts(queue_url: str, client: AwsClient) -> tuple[int, int]:
    """Return the approximate numbers of visible and in-flight messages of a queue."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = client.call("get_queue_attributes", QueueUrl=queue_url, AttributeNames=names)
    with reading("sqs"):
        visible, inflight = (int(found["Attributes"][name]) for name in names)
    return visible, inflight
