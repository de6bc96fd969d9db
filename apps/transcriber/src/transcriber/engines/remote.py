"""Engines of an endpoint with OpenAI's API: gpt-4o-mini-transcribe, whisper-1 and others."""

from pathlib import Path
from typing import Any

import httpx

from transcriber.captions import Segment
from transcriber.problems import Problem
from transcriber.settings import Endpoint


def opened(endpoint: Endpoint, model: str) -> "RemoteEngine":
    return RemoteEngine(endpoint, model)


class RemoteEngine:
    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint = endpoint
        self._model = model

    def __call__(self, chunk: Path, key: str) -> list[Segment]:
        """Send a chunk. The text of a model that tells no times is one segment."""
        size = chunk.stat().st_size
        if size > self._endpoint.longest:
            raise Problem(f"a chunk has {size:,} bytes; set TRANSCRIBER_OPENAI_MAX_FILE or TRANSCRIBER_CHUNK_SECONDS")
        timed = self._model.startswith("whisper")
        with httpx.Client(timeout=self._endpoint.timeout) as client, chunk.open("rb") as sound:
            response = client.post(
                f"{self._endpoint.url}/audio/transcriptions",
                headers=headers(self._endpoint, key),
                data={"model": self._model, "response_format": "verbose_json" if timed else "json"},
                files={"file": (chunk.name, sound, "audio/mpeg")},
            )
        answer = checked(response)
        parts = [(each["start"], each["end"], each["text"]) for each in answer.get("segments") or []]
        if not parts:
            parts = [(0.0, float(answer.get("duration") or 0.0), str(answer.get("text") or ""))]
        return [Segment(start, end, text.strip()) for start, end, text in parts if text.strip()]


def headers(endpoint: Endpoint, key: str = "") -> dict[str, str]:
    """Return the headers of a request; `key` lets a server that knows it find the answer of an earlier attempt."""
    named = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    return named | ({"Idempotency-Key": key} if key else {})


def checked(response: httpx.Response) -> dict[str, Any]:
    """Return the answer; raise httpx.HTTPStatusError, or Problem for what is not JSON or says that no quota is left."""
    if response.status_code == 429 and "insufficient_quota" in response.text:
        raise Problem("the quota of the endpoint is used up (insufficient_quota); add credit and retry", "auth")
    response.raise_for_status()
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Problem("the endpoint did not answer with a JSON object", "network")
    return answer
