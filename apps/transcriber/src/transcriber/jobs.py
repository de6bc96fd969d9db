"""Jobs: the content of a queue file, its checks, and which limit counts it."""

import os
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
from msgspec import Meta

from onerow import Addition, BadInput
from onerow.engine.output.masking import NO_SECRETS
from transcriber.engines import HEAVY
from transcriber.settings import is_engine_name, is_http

LISTS = (".m3u", ".m3u8", ".txt")
FLAGS = {
    "timestamps": "Begin each line of the transcript with its time.",
    "summary": "Write a summary.",
    "translate": "Translate the transcript.",
    "srt": "Write SRT and WebVTT subtitles.",
    "video": "Keep the downloaded file in video/.",
    "force": "Begin anew, also if the same recording was transcribed before.",
}
"""Flags of a job, of main.py and of `transcriber add`, with what they do."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a task. Forms show the descriptions."""

    url: Annotated[str, Meta(description="http(s)://…, or /the/whole/path of a file or a playlist")]
    engine: Annotated[str, Meta(description="pocketsphinx, whisper-cpp …; empty: that of the settings")] = ""
    video_id: str = ""
    title: Annotated[str, Meta(description="the title of the recording")] = ""
    timestamps: bool = False
    summary: bool = False
    translate: bool = False
    srt: bool = False
    video: bool = False
    force: bool = False
    job_id: str | int | None = None
    timestamp: str | None = None
    playlist: Annotated[str, Meta(description="the list that the job comes from")] = ""


def job_of(given: Mapping[str, Any], engine: str) -> Job:
    """Return a checked job from the keys of a queue file; keys that are not a job's are left out. Raise BadInput."""
    known = {key: value for key, value in given.items() if key in Job.__struct_fields__ and value is not None}
    try:
        job = msgspec.convert({"engine": engine} | known, Job)
    except msgspec.ValidationError as error:
        raise BadInput(str(error), field="job") from None
    url = _checked_url(job.url)
    if not is_engine_name(job.engine):
        raise BadInput(f"engine {job.engine[:60]!r} is not the name of an engine", field="engine")
    return msgspec.structs.replace(job, url=url, video_id=job.video_id or video_id_of(url))


def addition_of(job: Job, given: Addition) -> Addition:
    """Return the addition of a job: its payload and title, by default a file's name, or a URL without password and keys."""
    name = os.path.basename(job.url) if job.url.startswith("/") else NO_SECRETS.text(job.url)
    title = given.title or job.title or name
    return msgspec.structs.replace(given, payload=msgspec.to_builtins(job), title=title[:500])


def limit_key_of(engine: str) -> str:
    """Return the key whose limit counts a job: one for all engines that need much memory."""
    return "heavy" if engine in HEAVY else ""


def is_playlist(url: str) -> bool:
    """Whether a URL is a list of recordings, not a recording."""
    parts = urlsplit(url)
    if parts.path.lower().endswith(LISTS):
        return True
    query = parse_qs(parts.query)
    return parts.scheme in ("http", "https") and "list" in query and "v" not in query


def video_id_of(url: str) -> str:
    """Return the id of a video: that in the URL's query, or the name of the file."""
    if "://" not in url:
        return os.path.splitext(os.path.basename(url))[0][:200]
    parts = urlsplit(url)
    name = os.path.splitext(os.path.basename(unquote(parts.path)))[0]
    return (parse_qs(parts.query).get("v") or [name or parts.hostname or ""])[0][:200]


def _checked_url(url: str) -> str:
    """Return an http(s) URL, or the absolute and normalised path of a file."""
    if not url.isprintable() or not url or len(url) > 4_000:
        raise BadInput("url must be printable and have 1 to 4,000 characters", field="url")
    if is_http(url):
        return url
    scheme, _, rest = url.partition("://")
    path = url
    if rest and scheme.lower() == "file":
        host, slash, name = rest.partition("/")
        path = unquote(slash + name) if host in ("", "localhost") else ""
    if not os.path.isabs(path):
        raise BadInput(
            f"url {url[:200]!r} is neither an http(s) URL nor the absolute path of a file of this host",
            fix="write /the/whole/path",
            field="url",
        )
    return os.path.normpath(path)
