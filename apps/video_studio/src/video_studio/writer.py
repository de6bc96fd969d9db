"""Scripts from a chat endpoint with OpenAI's API, and the translation of its answers to errors for the queue."""

import email.utils
import re
from datetime import UTC, datetime, timedelta

import httpx
import msgspec

from onerow import RateLimited
from video_studio.script import Scene, Script, reading_time
from video_studio.settings import Endpoint

_ASK = (
    "Write the script of a short film about the topic that the user names, in the topic's language. "
    'Answer with JSON only: {"title": "…", "description": "…", "scenes": [{"title": "…", "caption": "…"}]}. '
    "Four to six scenes; a title has at most five words, a caption at most two short sentences."
)
_MOST_SCENES = 12


class _Message(msgspec.Struct):
    content: str


class _Choice(msgspec.Struct):
    message: _Message


class _Answer(msgspec.Struct):
    choices: list[_Choice]


class _Scene(msgspec.Struct):
    title: str
    caption: str


class _Script(msgspec.Struct):
    title: str
    scenes: list[_Scene]
    description: str = ""


async def ask_for_script(endpoint: Endpoint, topic: str) -> Script:
    """Return a script that the endpoint wrote.

    Raise RateLimited on 429, with the delay that the answer asks for; httpx errors on other failures, which the queue
    classifies; ValueError if the answer is not a script, which is retried.
    """
    body = {
        "model": endpoint.model,
        "messages": [{"role": "system", "content": _ASK}, {"role": "user", "content": topic}],
        "response_format": {"type": "json_object"},
    }
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    async with httpx.AsyncClient(timeout=endpoint.timeout) as client:
        answer = await client.post(f"{endpoint.url}/chat/completions", json=body, headers=headers)
    if answer.status_code == 429:
        raise RateLimited(retry_after(answer, datetime.now(UTC)), f"{endpoint.url} says: too many requests")
    answer.raise_for_status()
    return _read(answer.content, topic)


def retry_after(answer: httpx.Response, now: datetime) -> timedelta:
    """Return the delay that an answer asks for, in seconds or as a date; a minute by default."""
    text = answer.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        return timedelta(seconds=float(text))
    try:
        return max(timedelta(seconds=1), email.utils.parsedate_to_datetime(text) - now)
    except (TypeError, ValueError):
        return timedelta(minutes=1)


def _read(content: bytes, topic: str) -> Script:
    try:
        text = msgspec.json.decode(content, type=_Answer).choices[0].message.content
        found = msgspec.json.decode(re.sub(r"^```(?:json)?|```$", "", text.strip()).encode(), type=_Script)
    except (msgspec.MsgspecError, IndexError) as error:
        raise ValueError(f"the endpoint's answer is no script: {error}") from None
    scenes = [s for s in found.scenes if s.title.strip() and s.caption.strip()][:_MOST_SCENES]
    if not scenes or not found.title.strip():
        raise ValueError("the endpoint's answer is a script without scenes or without a title")
    timed = [Scene(s.title.strip(), s.caption.strip(), reading_time(s.caption)) for s in scenes]
    return Script(found.title.strip(), found.description.strip(), timed, [topic])
