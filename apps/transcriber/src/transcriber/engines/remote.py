"""Engines of an endpoint with OpenAI's API: gpt-4o-mini-transcribe, whisper-1 and others."""

from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec

from transcriber.captions import Segment
from transcriber.problems import Problem
from transcriber.settings import Endpoint

T = TypeVar("T")


def opened(endpoint: Endpoint, model: str, language: str) -> "RemoteEngine":
    return RemoteEngine(endpoint, model, {} if language == "auto" else {"language": language})


class _Part(msgspec.Struct):
    start: float
    end: float
    text: str


class _Heard(msgspec.Struct):
    text: str
    segments: list[_Part] | None = None


class RemoteEngine:
    def __init__(self, endpoint: Endpoint, model: str, options: dict[str, str]) -> None:
        self._endpoint = endpoint
        self._model = model
        self._options = options

    def __call__(self, chunk: Path, key: str) -> list[Segment]:
        """Send a chunk. The text of a model that tells no times is one segment that ends at 0."""
        size = chunk.stat().st_size
        if size > self._endpoint.longest:
            raise Problem(f"a chunk has {size:,} bytes; set TRANSCRIBER_OPENAI_MAX_FILE or TRANSCRIBER_CHUNK_SECONDS")
        timed = "whisper" in self._model.lower()
        with httpx.Client(timeout=self._endpoint.timeout) as client, chunk.open("rb") as sound:
            response = client.post(
                f"{self._endpoint.url}/audio/transcriptions",
                headers=headers(self._endpoint, key),
                data={"model": self._model, "response_format": "verbose_json" if timed else "json", **self._options},
                files={"file": (chunk.name, sound, "audio/mpeg")},
            )
        heard = checked(response, _Heard)
        parts = heard.segments or [_Part(0.0, 0.0, heard.text)]
        return [Segment(each.start, each.end, each.text.strip()) for each in parts if each.text.strip()]


def headers(endpoint: Endpoint, key: str = "") -> dict[str, str]:
    """Return the headers of a request; `key` lets a server that knows it find the answer of an earlier attempt."""
    if not (endpoint.key.isascii() and endpoint.key.isprintable()):
        raise Problem("OPENAI_API_KEY has letters that are in no key; copy it again", "auth")
    named = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    return named | ({"Idempotency-Key": quote(key, safe=":")} if key else {})  # a job's id may have any letters


def checked(response: httpx.Response, kind: type[T]) -> T:
    """Return the answer; raise httpx.HTTPStatusError, or Problem if it is of another form or says that no quota is left."""
    if response.status_code == 429 and "insufficient_quota" in response.text:
        raise Problem("the quota of the endpoint is used up (insufficient_quota); add credit and retry", "auth")
    response.raise_for_status()
    try:
        return msgspec.json.decode(response.content, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # An error with status 200 too: without this check the job would be completed without words.
        raise Problem(f"the endpoint's answer is not as expected ({error}): {response.text[:200]}", "network") from None
