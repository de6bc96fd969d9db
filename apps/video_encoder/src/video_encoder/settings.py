"""Settings from the environment: the store, the bucket, the queue of messages, and the ladder."""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

import msgspec

from onerow import BadInput
from onerow.core.durations import parse_duration
from onerow.core.sizes import parse_size

_HEIGHTS = "720,480,240"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one encoder."""

    store: str
    bucket: str
    s3_endpoint: str | None  # None: AWS
    s3_key_id: str | None  # None: boto3's usual places; R2 has credentials of its own
    s3_secret: str | None
    queue_url: str
    mode: Literal["fast", "classic"]
    visibility: str
    heights: tuple[int, int, int]
    max_size: int
    timeout: str
    lease: str
    retry_wait: str
    work: Path

    @classmethod
    def of_environment(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Read the variables ENCODER_…; raise an error that names a wrong variable."""
        env = os.environ if variables is None else variables
        mode = env.get("ENCODER_MODE") or "fast"
        if mode not in ("fast", "classic"):
            raise BadInput(f"ENCODER_MODE must be 'fast' or 'classic', not {mode!r}", field="ENCODER_MODE")
        return cls(
            store=_store(env.get("ENCODER_STORE") or "sqlite:///encoder.db"),
            bucket=env.get("ENCODER_BUCKET") or "",
            s3_endpoint=_url(env, "ENCODER_S3_ENDPOINT", "https://ID.r2.cloudflarestorage.com") or None,
            s3_key_id=env.get("ENCODER_S3_KEY_ID") or None,
            s3_secret=env.get("ENCODER_S3_SECRET") or None,
            queue_url=_url(env, "ENCODER_QUEUE_URL", "https://sqs.eu-central-1.amazonaws.com/123456789012/videos"),
            mode="classic" if mode == "classic" else "fast",
            visibility=_duration(env, "ENCODER_VISIBILITY", "60s", timedelta(hours=12)),
            heights=_heights(env.get("ENCODER_HEIGHTS") or _HEIGHTS),
            max_size=parse_size(env.get("ENCODER_MAX_SIZE") or "20GB", "ENCODER_MAX_SIZE"),
            timeout=_duration(env, "ENCODER_TIMEOUT", "4h", timedelta(days=7)),
            lease=_duration(env, "ENCODER_LEASE", "30s", timedelta(days=7)),
            retry_wait=_duration(env, "ENCODER_RETRY_WAIT", "30s", timedelta(days=7)),
            work=Path(env.get("ENCODER_WORK") or "encoder-work").expanduser().absolute(),
        )

    def needed(self, *names: str) -> None:
        """Raise BadInput that names the first of these settings that is not set."""
        for name in names:
            if not getattr(self, name):
                variable = f"ENCODER_{name.upper()}"
                raise BadInput(f"{variable} is not set", fix=f"export {variable}=…", field=variable)


def _store(url: str) -> str:
    """Return a URL whose path does not depend on where this package is installed."""
    path = url.removeprefix("sqlite:///")
    return url if path == url or path.startswith("/") else f"sqlite:///{quote(str(Path.cwd()))}/{path}"


def _url(env: Mapping[str, str], variable: str, example: str) -> str:
    url = env.get(variable) or ""
    if url and not url.startswith(("http://", "https://")):
        raise BadInput(f"{variable} must be a URL like {example}, not {url!r}", field=variable)
    return url


def _duration(env: Mapping[str, str], variable: str, default: str, most: timedelta) -> str:
    text = env.get(variable) or default
    if not timedelta(seconds=1) <= parse_duration(text, variable) <= most:
        raise BadInput(f"{variable} must be from 1s to {most.total_seconds() / 3600:g}h, not {text!r}", field=variable)
    return text


def _heights(text: str) -> tuple[int, int, int]:
    parts = [part.strip() for part in text.split(",")]
    heights = [int(part) for part in parts if part.isascii() and part.isdigit()]
    falling = sorted(set(heights), reverse=True)
    if len(parts) != 3 or heights != falling or len(heights) != 3 or not 48 <= heights[2] <= heights[0] <= 4320:
        raise BadInput(
            f"ENCODER_HEIGHTS must be three falling heights from 4320 to 48, like {_HEIGHTS}, not {text!r}",
            field="ENCODER_HEIGHTS",
        )
    return heights[0], heights[1], heights[2]
