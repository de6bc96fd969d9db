"""boto3 clients whose exceptions become ScalingUnavailable."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from onerow.core.errors import BadInput, ScalingUnavailable
from onerow.scaling.local_endpoints import instance_metadata


@contextmanager
def reading(service: str) -> Iterator[None]:
    """Raise ScalingUnavailable if a field that the block reads from an answer is missing or has another type."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise ScalingUnavailable(f"{service}: the answer lacks a field, or it has another type: {error!r}") from error


class AwsClient:
    """A boto3 client for one service, created at the first call. Endpoint and credentials come from AWS's own settings."""

    def __init__(self, service: str, *, region: str | None = None, endpoint_url: str | None = None) -> None:
        self._service = service
        self._region = region
        self._endpoint = endpoint_url
        self._client: Any = None

    def call(self, operation: str, **terms: Any) -> dict[str, Any]:
        """Call an operation; raise ScalingUnavailable if AWS refuses or does not answer."""
        client = self._open()
        from botocore.exceptions import ClientError

        try:
            answer: dict[str, Any] = getattr(client, operation)(**terms)
        except ClientError as error:
            found = error.response.get("Error", {})
            denied = "AccessDenied" in str(found.get("Code"))
            raise ScalingUnavailable(
                f"{self._service}: {found.get('Code')}: {found.get('Message')}",
                fix="give it the rights that `onerow deploy lambda` prints" if denied else "",
            ) from error
        except Exception as error:  # botocore has no common class for what a proxy may answer in the place of AWS
            raise ScalingUnavailable(f"{self._service}: {error}") from error
        return answer

    def check_installed(self) -> None:
        """Raise BadInput if boto3 is missing."""
        if find_spec("boto3") is None:
            raise BadInput(
                "scaling on AWS needs boto3", fix="install it with: pip install 'onerow[aws]'", field="apply"
            )

    def _open(self) -> Any:
        if self._client is None:
            self.check_installed()
            from boto3.session import Session
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError

            config = Config(
                retries={"mode": "standard", "total_max_attempts": 3},
                connect_timeout=5,
                read_timeout=20,
                user_agent_extra="onerow",
            )
            try:
                # boto3 reads AWS_DEFAULT_REGION and the profile; ECS, Lambda and other SDKs have AWS_REGION.
                session = Session(region_name=self._region or os.environ.get("AWS_REGION") or None)
                self._client = session.client(
                    self._service,
                    region_name=session.region_name or _instance_region(),
                    endpoint_url=self._endpoint,
                    config=config,
                )
            except BotoCoreError as error:
                raise BadInput(
                    f"{self._service}: {error}",
                    fix="set AWS_REGION, or write asg:NAME?region=eu-central-1",
                    field="apply",
                ) from error
        return self._client

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _instance_region() -> str | None:
    """Return the region of this EC2 instance; None elsewhere."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    try:
        return instance_metadata("placement/region")
    except ScalingUnavailable:
        return None
