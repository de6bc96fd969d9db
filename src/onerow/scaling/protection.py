"""Scale-in protection: a busy instance or ECS task keeps AWS from ending it, and gives that up when it is idle."""

import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from onerow.core.errors import BadInput, ScalingUnavailable
from onerow.scaling.aws_client import AwsClient

AGENT = "ECS_AGENT_URI"
"""The environment variable by which the ECS agent names its endpoint to the containers of a task."""
METADATA = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
KINDS = ("asg", "ecs")

_METADATA_DEFAULT = "http://169.254.169.254"
_MINUTES = 60  # the protection of an ECS task ends by itself after this time, so that a frozen task can be ended
_RENEW_AFTER = 600.0  # seconds
_IDLE_FOR = 15.0  # seconds without work before the protection is given up; a call per task would be throttled
_RETRY_AFTER = 5.0
_LOOK_EVERY = 0.5
_TIMEOUT = 5.0


class Protection(Protocol):
    """Protects this machine or task from scale-in."""

    @property
    def renew_after(self) -> float | None:
        """Seconds after which it must be set again; None: it holds until it is given up."""

    def set(self, protected: bool) -> None:
        """Protect, or give it up; raise ScalingUnavailable."""


class InstanceProtection:
    """This EC2 instance, in its Auto Scaling group."""

    renew_after = None

    def __init__(self, client: AwsClient, metadata: str | None = None) -> None:
        self._client = client
        self._metadata = (metadata or os.environ.get(METADATA) or _METADATA_DEFAULT).rstrip("/")
        self._where: tuple[str, str] | None = None  # instance, group

    def set(self, protected: bool) -> None:
        instance, group = self._find()
        self._client.call(
            "set_instance_protection",
            InstanceIds=[instance],
            AutoScalingGroupName=group,
            ProtectedFromScaleIn=protected,
        )

    def _find(self) -> tuple[str, str]:
        if self._where is None:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
            token = _request("PUT", f"{self._metadata}/latest/api/token", headers=lifetime).decode()
            headers = {"X-aws-ec2-metadata-token": token}
            instance = _request("GET", f"{self._metadata}/latest/meta-data/instance-id", headers=headers).decode()
            found = self._client.call("describe_auto_scaling_instances", InstanceIds=[instance])
            if not found["AutoScalingInstances"]:
                raise ScalingUnavailable(f"instance {instance} is in no Auto Scaling group")
            self._where = instance, found["AutoScalingInstances"][0]["AutoScalingGroupName"]
        return self._where


class TaskProtection:
    """This ECS task, through the endpoint of the ECS agent."""

    renew_after = _RENEW_AFTER

    def __init__(self, agent: str | None = None) -> None:
        found = agent or os.environ.get(AGENT)
        if not found:
            raise BadInput(
                f"{AGENT} is not set, so this is no ECS task whose agent protects tasks",
                fix="run it in an ECS service on an agent of version 1.65.0 or newer, or on Fargate 1.4.0",
                field="protect",
            )
        self._url = f"{found.rstrip('/')}/task-protection/v1/state"

    def set(self, protected: bool) -> None:
        body: dict[str, Any] = {"ProtectionEnabled": protected}
        if protected:
            body["ExpiresInMinutes"] = _MINUTES
        answer = json.loads(_request("PUT", self._url, body=json.dumps(body).encode()))
        problem = answer.get("failure") or answer.get("error")
        if problem or answer.get("protection", {}).get("ProtectionEnabled") is not protected:
            problem = problem or {}
            reason = problem.get("Reason") or problem.get("Code") or "no protection in the answer"
            raise ScalingUnavailable(
                f"the ECS agent: {reason}: {problem.get('Detail') or problem.get('Message') or ''}"
            )


def open_protection(kind: str) -> Protection:
    return InstanceProtection(AwsClient("autoscaling")) if kind == "asg" else TaskProtection()


class Protector:
    """Keeps the protection in step with the work, in a thread of its own. `running` returns the number of running tasks."""

    def __init__(self, protection: Protection, running: Callable[[], int], say: Callable[[str], None]) -> None:
        self._protection = protection
        self._running = running
        self._say = say
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="onerow scale-in protection", daemon=True)
        self._protected: bool | None = None  # not known yet
        self._set_at = self._busy_at = self._retry_at = float("-inf")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop, and give the protection up: the work has ended or was handed back."""
        self._stopping.set()
        self._thread.join(3 * _TIMEOUT)
        if self._protected is not False:
            self._set(False, monotonic())

    def tick(self, now: float) -> None:
        """Protect if there is work; give it up if there was none for some time; renew what expires."""
        if self._running() > 0:
            self._busy_at = now
        wanted = now - self._busy_at < _IDLE_FOR
        renew_after = self._protection.renew_after
        old = wanted and renew_after is not None and now - self._set_at >= renew_after
        if (wanted is not self._protected or old) and now >= self._retry_at:
            self._set(wanted, now)

    def _set(self, protected: bool, now: float) -> None:
        try:
            self._protection.set(protected)
        except ScalingUnavailable as error:
            self._retry_at = now + _RETRY_AFTER
            self._say(f"scale-in protection could not be {'set' if protected else 'given up'}: {error}")
        else:
            self._protected, self._set_at = protected, now

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_EVERY):
            self.tick(monotonic())


def _request(method: str, url: str, *, headers: dict[str, str] | None = None, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, data=body, method=method, headers=dict(headers or {}))
    if body is not None:
        request.add_header("Content-Type", "application/json")
    # No proxy: these addresses are local to the machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT) as answer:
            content: bytes = answer.read(65_536)
            return content
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(2_000).decode(errors="replace")
        raise ScalingUnavailable(f"{url}: {error.code} {detail}".strip()) from None
    except (OSError, ValueError) as error:
        raise ScalingUnavailable(f"{url}: {error}") from None
