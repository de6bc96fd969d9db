"""Requests to HTTP endpoints that AWS serves on the machine itself: instance metadata, and the ECS agent."""

import os
import urllib.error
import urllib.request
from http.client import HTTPException

from onerow.core.errors import ScalingUnavailable

METADATA = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
TIMEOUT = 5.0

_METADATA_DEFAULT = "http://169.254.169.254"


def instance_metadata(path: str, endpoint: str | None = None) -> str:
    """Return metadata of this instance, by version 2 of the service; raise ScalingUnavailable."""
    base = (endpoint or os.environ.get(METADATA) or _METADATA_DEFAULT).rstrip("/")
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = request("PUT", f"{base}/latest/api/token", headers=lifetime).decode(errors="replace").strip()
    headers = {"X-aws-ec2-metadata-token": token}
    found = request("GET", f"{base}/latest/meta-data/{path}", headers=headers).decode(errors="replace").strip()
    if not found:
        raise ScalingUnavailable(f"the metadata of this instance have no {path}")
    return found


def request(method: str, url: str, *, headers: dict[str, str] | None = None, body: bytes | None = None) -> bytes:
    """Return the content of an answer; raise ScalingUnavailable for any other status than success."""
    sent = urllib.request.Request(url, data=body, method=method, headers=dict(headers or {}))
    if body is not None:
        sent.add_header("Content-Type", "application/json")
    # No proxy: these addresses are local to the machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(sent, timeout=TIMEOUT) as answer:
            content: bytes = answer.read(65_536)
            return content
    except urllib.error.HTTPError as error:
        with error:
            detail = _rest(error)
        raise ScalingUnavailable(f"{url}: {error.code} {detail}".strip()) from None
    except (OSError, ValueError, HTTPException) as error:
        raise ScalingUnavailable(f"{url}: {error}") from None


def _rest(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(2_000).decode(errors="replace")
    except (OSError, HTTPException):
        return ""
