"""Objects in S3, R2 or another server that speaks the protocol."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import RetriesExceededError, S3UploadFailedError
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from video_encoder.settings import Settings

RAW, HLS = "raw/", "hls/"
_TYPES = {
    ".m3u8": "application/vnd.apple.mpegurl", ".m4s": "video/iso.segment", ".mp4": "video/mp4", ".jpg": "image/jpeg",
    ".vtt": "text/vtt",
}  # fmt: skip


class NoObject(Exception):
    """There is no object with this key, or not yet."""


def is_unavailable(error: BaseException | None) -> bool:
    """Whether the bucket does not answer, has an error of its own, or asks for fewer requests."""
    if isinstance(error, S3UploadFailedError):
        error = error.__context__
    if isinstance(error, RetriesExceededError):
        error = error.last_exception
    if isinstance(error, ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return status >= 500 or status == 429
    return isinstance(error, ConnectionError | HTTPClientError)


class Bucket:
    """One bucket."""

    def __init__(self, settings: Settings) -> None:
        settings.needed("bucket")
        self.name = settings.bucket
        self.client: Any = _client(settings.s3_endpoint, settings.s3_key_id, settings.s3_secret)

    def size(self, key: str) -> int:
        """Return the bytes of an object; raise NoObject."""
        try:
            return int(self.client.head_object(Bucket=self.name, Key=key)["ContentLength"])
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("404", "NoSuchKey", "NotFound"):
                raise NoObject(f"there is no object {key!r} in the bucket {self.name!r}") from None
            raise

    def fetch(self, key: str, path: Path) -> Path:
        """Download an object."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.client.download_file(self.name, key, str(path))
        return path

    def put(self, path: Path, key: str) -> None:
        """Upload a file, with the type that its name tells."""
        self.client.upload_file(
            str(path), self.name, key, ExtraArgs={"ContentType": _TYPES.get(path.suffix, "application/octet-stream")}
        )

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of each object below a prefix, by its name below it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return {found["Key"][len(prefix) :]: found["Size"] for page in pages for found in page.get("Contents", ())}

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is not there is no error."""
        for key in keys:
            self.client.delete_object(Bucket=self.name, Key=key)

    def upload_url(self, key: str, seconds: int) -> str:
        """Return a URL to which anyone may PUT this object for some time."""
        terms = {"Bucket": self.name, "Key": key}
        return str(self.client.generate_presigned_url("put_object", Params=terms, ExpiresIn=seconds))


@lru_cache(maxsize=8)
def _client(endpoint: str | None, key_id: str | None, secret: str | None) -> Any:
    config = Config(
        signature_version="s3v4",
        retries={"mode": "standard", "total_max_attempts": 3},
        connect_timeout=5,
        read_timeout=60,
        s3={"addressing_style": "path" if endpoint else "auto"},
        # R2 and older servers don't know the checksums that newer versions of boto3 add to each upload.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.session.Session().client(
        "s3", endpoint_url=endpoint, aws_access_key_id=key_id, aws_secret_access_key=secret, config=config
    )
