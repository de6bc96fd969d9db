"""Settings from the environment: the project's folder, engines, the endpoint, chunks and memory."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from onerow import BadInput
from onerow.core.sizes import parse_size

OPENAI = "https://api.openai.com/v1"


class Endpoint(msgspec.Struct, frozen=True):
    """An endpoint with OpenAI's API, for speech, summaries and translations. longest: bytes of one audio file."""

    url: str
    key: str
    model: str
    timeout: float
    longest: int


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one transcriber. Its home is the project root: all folders are in it."""

    home: Path
    engine: str = "pocketsphinx"
    endpoint: Endpoint | None = None
    translate_to: str = "ko"
    language: str = "en"
    chunk_seconds: float = 300
    parallel: int = 2
    memory: int = 0
    job_memory: int = 4 * 10**9
    interval: str = "2s"
    keep_taken: bool = True
    timeout: str = "6h"
    retry_wait: str = "5s"
    ffmpeg: str = ""
    whisper_cpp: str = "whisper-cli"
    whisper_cpp_model: str = ""
    faster_whisper_model: str = "base"

    @property
    def database(self) -> Path:
        return self.home / "transcriber.db"

    def folder(self, name: str) -> Path:
        """Return one of the folders queue, logs, transcript, audio, video, archive and work."""
        return self.home / name

    @property
    def heavy_jobs(self) -> int:
        """How many jobs of heavy engines fit into the memory; at least one, which then checks the free memory itself."""
        return max(1, self.memory // self.job_memory)

    @classmethod
    def of_environment(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Read the variables TRANSCRIBER_…; raise an error that names a wrong variable."""
        env = os.environ if variables is None else variables
        home = Path(env.get("TRANSCRIBER_HOME") or "transcriber").expanduser().absolute()
        taken = env.get("TRANSCRIBER_TAKEN") or "archive"
        if taken not in ("archive", "delete"):
            raise BadInput(f"TRANSCRIBER_TAKEN must be 'archive' or 'delete', not {taken!r}", field="TRANSCRIBER_TAKEN")
        return cls(
            home=Path(os.path.normpath(home)),
            engine=env.get("TRANSCRIBER_ENGINE") or "pocketsphinx",
            endpoint=_endpoint(env),
            translate_to=env.get("TRANSCRIBER_TRANSLATE_TO") or "ko",
            language=env.get("TRANSCRIBER_LANGUAGE") or "en",
            chunk_seconds=_number(env, "TRANSCRIBER_CHUNK_SECONDS", 300, 1, 86_400),
            parallel=int(_number(env, "TRANSCRIBER_PARALLEL", 2, 1, 64)),
            memory=parse_size(env.get("TRANSCRIBER_MEMORY") or _host_memory(), "TRANSCRIBER_MEMORY"),
            job_memory=parse_size(env.get("TRANSCRIBER_JOB_MEMORY") or "4GB", "TRANSCRIBER_JOB_MEMORY"),
            interval=env.get("TRANSCRIBER_INTERVAL") or "2s",
            keep_taken=taken == "archive",
            timeout=env.get("TRANSCRIBER_TIMEOUT") or "6h",
            retry_wait=env.get("TRANSCRIBER_RETRY_WAIT") or "5s",
            ffmpeg=env.get("TRANSCRIBER_FFMPEG") or "",
            whisper_cpp=env.get("TRANSCRIBER_WHISPER_CPP") or "whisper-cli",
            whisper_cpp_model=env.get("TRANSCRIBER_WHISPER_CPP_MODEL") or "",
            faster_whisper_model=env.get("TRANSCRIBER_FASTER_WHISPER_MODEL") or "base",
        )


def _endpoint(env: Mapping[str, str]) -> Endpoint | None:
    key = env.get("OPENAI_API_KEY") or ""
    url = env.get("TRANSCRIBER_OPENAI_BASE_URL") or (OPENAI if key else "")
    if not url:
        return None
    return Endpoint(
        url=url.rstrip("/"),
        key=key,
        model=env.get("TRANSCRIBER_OPENAI_MODEL") or "gpt-4o-mini",
        timeout=_number(env, "TRANSCRIBER_OPENAI_TIMEOUT", 300, 0.1, 3600),
        longest=parse_size(env.get("TRANSCRIBER_OPENAI_MAX_FILE") or "24MB", "TRANSCRIBER_OPENAI_MAX_FILE"),
    )


def _number(env: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    text = env.get(name) or ""
    try:
        value = float(text) if text else default
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise BadInput(f"{name} must be a number from {least:g} to {most:g}, not {text!r}", field=name)
    return value


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
