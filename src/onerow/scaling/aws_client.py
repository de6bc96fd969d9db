"""boto3 clients whose exceptions become ScalingUnavailable."""

from typing import Any

from onerow.core.errors import BadInput, ScalingUnavailable


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
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(client, operation)(**terms)
        except ClientError as error:
            found = error.response.get("Error", {})
            denied = "AccessDenied" in str(found.get("Code"))
            raise ScalingUnavailable(
                f"{self._service}: {found.get('Code')}: {found.get('Message')}",
                fix="give it the rights that `onerow deploy lambda` prints" if denied else "",
            ) from error
        except BotoCoreError as error:
            raise ScalingUnavailable(f"{self._service}: {error}") from error
        return answer

    def _open(self) -> Any:
        if self._client is None:
            try:
                import boto3
                from botocore.config import Config
                from botocore.exceptions import BotoCoreError
            except ModuleNotFoundError as error:
                raise BadInput(
                    f"scaling on AWS needs {error.name}",
                    fix="install it with: pip install 'onerow[aws]'",
                    field="apply",
                ) from None
            config = Config(
                retries={"mode": "standard", "total_max_attempts": 3},
                connect_timeout=5,
                read_timeout=20,
                user_agent_extra="onerow",
            )
            try:
                self._client = boto3.session.Session(region_name=self._region).client(
                    self._service, endpoint_url=self._endpoint, config=config
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
