"""Scale-in protection: a busy instance or ECS task keeps AWS from ending it, and gives that up when it is idle."""

import json
import os
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from onerow.core.errors import BadInput, ScalingUnavailable
from onerow.scaling.aws_client import AwsClient
from onerow.scaling.local_endpoints import TIMEOUT, instance_metadata, request

AGENT = "ECS_AGENT_URI"
"""The environment variable by which the ECS agent names its endpoint to the containers of a task."""
KINDS = ("asg", "ecs")

_MINUTES = 60  # the protection of an ECS task ends by itself after this time, so that a frozen task can be ended
_RENEW_TASK_AFTER = 600.0  # seconds
_RENEW_INSTANCE_AFTER = 120.0  # an operator or an instance refresh may take the protection away
_IDLE_FOR = 15.0  # seconds without work before the protection is given up; a call per task would be throttled
_RETRY_AFTER = 5.0
_LOOK_EVERY = 0.5


class Protection(Protocol):
    """Protects this machine or task from scale-in."""

    @property
    def renew_after(self) -> float | None:
        """Seconds after which it must be set again; None: it holds until it is given up."""

    def set(self, protected: bool) -> None:
        """Protect, or give it up; raise ScalingUnavailable."""


class InstanceProtection:
    """This EC2 instance, in its Auto Scaling group."""

    renew_after = _RENEW_INSTANCE_AFTER

    def __init__(self, client: AwsClient, metadata: str | None = None) -> None:
        self._client = client
        self._metadata = metadata
        self._where: tuple[str, str] | None = None  # instance, group

    def set(self, protected: bool) -> None:
        instance, group = self._where or self._find()
        self._where = None  # if AWS refuses, the instance may be in another group now
        self._client.call(
            "set_instance_protection",
            InstanceIds=[instance],
            AutoScalingGroupName=group,
            ProtectedFromScaleIn=protected,
        )
        self._where = instance, group

    def _find(self) -> tuple[str, str]:
        instance = instance_metadata("instance-id", self._metadata)
        found = self._client.call("describe_auto_scaling_instances", InstanceIds=[instance])
        if not found["AutoScalingInstances"]:
            raise ScalingUnavailable(f"instance {instance} is in no Auto Scaling group")
        return instance, found["AutoScalingInstances"][0]["AutoScalingGroupName"]


class TaskProtection:
    """This ECS task, through the endpoint of the ECS agent."""

    renew_after = _RENEW_TASK_AFTER

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
        content = request("PUT", self._url, body=json.dumps(body).encode())
        try:
            answer = json.loads(content)
        except ValueError:
            raise ScalingUnavailable(f"the ECS agent answered {content[:200]!r}") from None
        problem = _part(answer, "failure") or _part(answer, "error")
        if problem or _part(answer, "protection").get("ProtectionEnabled") is not protected:
            reason = problem.get("Reason") or problem.get("Code") or "no protection in the answer"
            raise ScalingUnavailable(
                f"the ECS agent: {reason}: {problem.get('Detail') or problem.get('Message') or ''}"
            )


def _part(answer: Any, name: str) -> dict[str, Any]:
    found = answer.get(name) if isinstance(answer, dict) else None
    return found if isinstance(found, dict) else {}


def open_protection(kind: str) -> Protection:
    """Return the protection of this machine; raise BadInput if what it needs is not installed or not there."""
    if kind == "ecs":
        return TaskProtection()
    client = AwsClient("autoscaling")
    client.check_installed()
    return InstanceProtection(client)


class Protector:
    """Keeps the protection in step with the work, in a thread of its own. `running` returns the number of running tasks."""

    def __init__(self, protection: Protection, running: Callable[[], int], say: Callable[[str], None]) -> None:
        self._protection = protection
        self._running = running
        self._say = say
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="onerow scale-in protection", daemon=True)
        self._protected: bool | None = None  # not known yet
        self._tried: bool | None = None
        self._problem = ""
        self._set_at = self._busy_at = self._retry_at = float("-inf")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop, and give the protection up: the work has ended or was handed back."""
        self._stopping.set()
        self._thread.join(3 * TIMEOUT)
        if self._protected is not False:
            self._set(False, monotonic())

    def tick(self, now: float) -> None:
        """Protect if there is work; give it up if there was none for some time; renew what expires."""
        if self._running() > 0:
            self._busy_at = now
        wanted = now - self._busy_at < _IDLE_FOR
        renew_after = self._protection.renew_after
        old = wanted and renew_after is not None and now - self._set_at >= renew_after
        # An error while giving it up must not delay a protection.
        if (wanted is not self._protected or old) and (now >= self._retry_at or wanted is not self._tried):
            self._set(wanted, now)

    def _set(self, protected: bool, now: float) -> None:
        self._tried = protected
        try:
            self._protection.set(protected)
        except Exception as error:  # whatever was answered: this thread must live as long as the work does
            self._protected = None  # the call may have succeeded, and only its answer was lost
            self._retry_at = now + _RETRY_AFTER
            problem = f"scale-in protection could not be {'set' if protected else 'given up'}: {error}"
            if problem != self._problem:  # once, not at each of its tries
                self._say(problem)
            self._problem = problem
        else:
            self._protected, self._set_at, self._problem = protected, now, ""

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_EVERY):
            self.tick(monotonic())
