"""Settings from the environment: the project's folder, engines, the endpoint, chunks and memory."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlsplit

import msgspec

from onerow import BadInput
from onerow.core.durations import parse_duration
from onerow.core.sizes import parse_size

OPENAI = "https://api.openai.com/v1"
WHISPER_CPP = "whisper-cli"


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
    language: str = "auto"
    chunk_seconds: float = 300
    parallel: int = 2
    memory: int = 0
    job_memory: int = 4 * 10**9
    interval: str = "2s"
    keep_taken: bool = True
    timeout: str = "6h"
    retry_wait: str = "5s"
    ffmpeg: str = ""
    whisper_cpp: str = WHISPER_CPP
    whisper_cpp_model: str = ""
    faster_whisper_model: str = "base"

    @property
    def database(self) -> Path:
        return self.home / "transcriber.db"

    @property
    def store(self) -> str:
        """The URL of the database."""
        return f"sqlite:///{quote(str(self.database))}"

    def folder(self, name: str) -> Path:
        """Return one of the folders queue, logs, transcript, audio, video, archive and work."""
        return self.home / name

    @property
    def heavy_jobs(self) -> int:
        """How many jobs of heavy engines fit into the memory; at least one, which then checks the free memory itself."""
        return max(1, self.memory // self.job_memory)

    def check_programs(self) -> None:
        """Raise an error that names a variable if it names a program or a file that is not there."""
        for name, program in (("TRANSCRIBER_FFMPEG", self.ffmpeg), ("TRANSCRIBER_WHISPER_CPP", self.whisper_cpp)):
            if program not in ("", WHISPER_CPP) and shutil.which(program) is None:
                raise BadInput(f"{name}: there is no program {program!r}", field=name)
        if self.whisper_cpp_model and not Path(self.whisper_cpp_model).is_file():
            name = "TRANSCRIBER_WHISPER_CPP_MODEL"
            raise BadInput(f"{name}: there is no file {self.whisper_cpp_model!r}", field=name)

    @classmethod
    def of_environment(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Read the variables TRANSCRIBER_…; raise an error that names a wrong variable."""
        env = os.environ if variables is None else variables
        home = Path(env.get("TRANSCRIBER_HOME") or "transcriber").expanduser().absolute()
        taken = env.get("TRANSCRIBER_TAKEN") or "archive"
        if taken not in ("archive", "delete"):
            raise BadInput(f"TRANSCRIBER_TAKEN must be 'archive' or 'delete', not {taken!r}", field="TRANSCRIBER_TAKEN")
        engine = env.get("TRANSCRIBER_ENGINE") or "pocketsphinx"
        if not is_engine_name(engine):
            raise BadInput(
                f"TRANSCRIBER_ENGINE: {engine[:60]!r} is not the name of an engine", field="TRANSCRIBER_ENGINE"
            )
        return cls(
            home=Path(os.path.normpath(home)),
            engine=engine,
            endpoint=_endpoint(env),
            translate_to=env.get("TRANSCRIBER_TRANSLATE_TO") or "ko",
            language=env.get("TRANSCRIBER_LANGUAGE") or "auto",
            chunk_seconds=_number(env, "TRANSCRIBER_CHUNK_SECONDS", 300, 1, 86_400),
            parallel=int(_number(env, "TRANSCRIBER_PARALLEL", 2, 1, 64, whole=True)),
            memory=parse_size(env.get("TRANSCRIBER_MEMORY") or _host_memory(), "TRANSCRIBER_MEMORY"),
            job_memory=parse_size(env.get("TRANSCRIBER_JOB_MEMORY") or "4GB", "TRANSCRIBER_JOB_MEMORY"),
            interval=_duration(env, "TRANSCRIBER_INTERVAL", "2s", "50ms", "1d"),
            keep_taken=taken == "archive",
            timeout=_duration(env, "TRANSCRIBER_TIMEOUT", "6h", "1s", "30d"),
            retry_wait=_duration(env, "TRANSCRIBER_RETRY_WAIT", "5s", "1ms", "1d"),
            ffmpeg=env.get("TRANSCRIBER_FFMPEG") or "",
            whisper_cpp=env.get("TRANSCRIBER_WHISPER_CPP") or WHISPER_CPP,
            whisper_cpp_model=env.get("TRANSCRIBER_WHISPER_CPP_MODEL") or "",
            faster_whisper_model=env.get("TRANSCRIBER_FASTER_WHISPER_MODEL") or "base",
        )


def is_engine_name(text: str) -> bool:
    """Whether a text can be an engine's name; not an option of main.py."""
    return text.isprintable() and text == text.strip() and 0 < len(text) <= 200 and not text.startswith("-")


def is_http(url: str) -> bool:
    """Whether a text is an http(s) URL with a host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _endpoint(env: Mapping[str, str]) -> Endpoint | None:
    key = env.get("OPENAI_API_KEY") or ""
    url = env.get("TRANSCRIBER_OPENAI_BASE_URL") or OPENAI
    if not is_http(url):
        name = "TRANSCRIBER_OPENAI_BASE_URL"
        raise BadInput(f"{name} must be an http(s) URL such as {OPENAI}", field=name)
    endpoint = Endpoint(
        url=url.rstrip("/"),
        key=key,
        model=env.get("TRANSCRIBER_OPENAI_MODEL") or "gpt-4o-mini",
        timeout=_number(env, "TRANSCRIBER_OPENAI_TIMEOUT", 300, 0.1, 3600),
        longest=parse_size(env.get("TRANSCRIBER_OPENAI_MAX_FILE") or "24MB", "TRANSCRIBER_OPENAI_MAX_FILE"),
    )
    return endpoint if key or env.get("TRANSCRIBER_OPENAI_BASE_URL") else None


def _number(
    env: Mapping[str, str], name: str, default: float, least: float, most: float, *, whole: bool = False
) -> float:
    text = env.get(name) or ""
    try:
        value = float(text) if text else default
    except ValueError:
        value = least - 1
    if not least <= value <= most or (whole and value % 1):
        kind = "a whole number" if whole else "a number"
        raise BadInput(f"{name} must be {kind} from {least:g} to {most:g}, not {text!r}", field=name)
    return value


def _duration(env: Mapping[str, str], name: str, default: str, least: str, most: str) -> str:
    text = env.get(name) or default
    if not parse_duration(least) <= parse_duration(text, name) <= parse_duration(most):
        raise BadInput(f"{name} must be from {least} to {most}, not {text!r}", field=name)
    return text


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
