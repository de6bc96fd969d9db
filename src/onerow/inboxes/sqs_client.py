"""Calls to SQS: boto3's exceptions become InboxUnavailable, and parts of a batch that fail are sent again."""

import re
import threading
from collections.abc import Iterator, Sequence
from time import sleep
from typing import Any
from urllib.parse import urlsplit

from onerow.core.errors import BadInput, InboxUnavailable

BATCH = 10
"""The most messages of one call."""
LONGEST_WAIT = 20
"""The longest long poll, in seconds."""
_PAUSES = (0.1, 0.4)
_AWS = re.compile(
    r"sqs(?:-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?|(?P<old>[a-z0-9-]+)\.queue\.amazonaws\.com"
)


class SqsClient:
    """A boto3 client for the endpoint of one queue, created at the first call; thread-safe."""

    def __init__(self, queue_url: str, endpoint_url: str | None, region: str | None) -> None:
        parts = urlsplit(queue_url)
        found = _AWS.fullmatch(parts.hostname or "")
        self.region = region or (found and (found["region"] or found["old"])) or None
        self._endpoint = endpoint_url or (None if found else f"{parts.scheme}://{parts.netloc}")
        self._lock = threading.Lock()
        self._client: Any = None

    def call(self, operation: str, **terms: Any) -> dict[str, Any]:
        """Call an operation; raise InboxUnavailable if SQS refuses or does not answer."""
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

        client = self._open()
        try:
            answer: dict[str, Any] = getattr(client, operation)(**terms)
        except ClientError as error:
            found = error.response.get("Error", {})
            raise Refused(f"SQS: {found.get('Code')}: {found.get('Message')}", str(found.get("Code"))) from error
        except (BotoCoreError, HTTPClientError) as error:
            raise InboxUnavailable(f"SQS: {error}") from error
        return answer

    def batch(self, operation: str, queue_url: str, entries: Sequence[dict[str, Any]]) -> None:
        """Call a batch operation; send entries again that failed by no fault of ours.

        An entry that fails for good, for example because its receipt handle is stale, needs nothing more: SQS delivers
        the message again, or has already done so.
        """
        for left in _tens(entries):
            for pause in (*_PAUSES, None):
                failed = self.call(operation, QueueUrl=queue_url, Entries=left).get("Failed", ())
                again = {entry["Id"] for entry in failed if _may_succeed(entry)}
                left = [entry for entry in left if entry["Id"] in again]
                if not left or pause is None:
                    break
                sleep(pause)

    def _open(self) -> Any:
        with self._lock:
            if self._client is None:
                try:
                    import boto3
                    import botocore
                    from botocore.config import Config
                    from botocore.exceptions import BotoCoreError
                except ModuleNotFoundError as error:
                    raise BadInput(
                        f"SQS needs {error.name}", fix="install it with: pip install 'onerow[sqs]'", field="inbox"
                    ) from None
                # Few tries here: the receiver repeats with a growing pause and shows the error.
                config = Config(
                    retries={"mode": "standard", "total_max_attempts": 2},
                    connect_timeout=5,
                    read_timeout=LONGEST_WAIT + 10,
                    max_pool_connections=50,
                    # boto3 checks arguments and composes its name again for each call: a fifth of its CPU.
                    parameter_validation=False,
                    user_agent=f"onerow botocore/{botocore.__version__}",
                )
                try:
                    session = boto3.session.Session(region_name=self.region)
                    region = session.region_name or ("us-east-1" if self._endpoint else None)
                    self._client = session.client("sqs", endpoint_url=self._endpoint, region_name=region, config=config)
                except BotoCoreError as error:
                    raise BadInput(f"SQS: {error}", field="inbox") from error
            return self._client

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


class Refused(InboxUnavailable):
    """SQS answered with an error. code: the name of the error, for example RequestThrottled."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def _tens(entries: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(entries), BATCH):
        yield [entry | {"Id": str(number)} for number, entry in enumerate(entries[first : first + BATCH])]


def _may_succeed(entry: dict[str, Any]) -> bool:
    return not entry.get("SenderFault") or "Throttl" in str(entry.get("Code"))
