"""Engines of transcription: what each needs, and which of them hear audio."""

import shutil
from collections.abc import Callable
from pathlib import Path

from transcriber.captions import Segment
from transcriber.problems import Problem
from transcriber.settings import HEAVY_MEMORY, Settings

HEAVY = ("whisper-cpp", "faster-whisper")
"""Engines that load a large model: at least 4 GB for each job."""
EXISTING = ("youtube", "subtitles")
"""Engines that take captions that exist, and hear nothing."""
LOCAL = ("pocketsphinx", *HEAVY)
Hear = Callable[[Path, str], list[Segment]]
"""Transcribe an audio chunk; the second argument is a key that is the same at each attempt of the chunk."""


def is_remote(engine: str) -> bool:
    """Whether the engine is a model of the endpoint: gpt-4o-mini-transcribe, whisper-1 and others."""
    return engine not in (*LOCAL, *EXISTING)


def check_engine(engine: str, settings: Settings) -> None:
    """Raise Problem, before any work, if the engine can't run here."""
    if is_remote(engine) and settings.endpoint is None:
        known = ", ".join((*LOCAL, *EXISTING))
        raise Problem(
            f"the engine {engine!r} needs an endpoint: set OPENAI_API_KEY, or TRANSCRIBER_OPENAI_BASE_URL; "
            f"engines without one are {known}"
        )
    if engine == "whisper-cpp":
        if shutil.which(settings.whisper_cpp) is None:
            raise Problem(f"there is no program {settings.whisper_cpp!r}: set TRANSCRIBER_WHISPER_CPP")
        if not Path(settings.whisper_cpp_model).is_file():
            raise Problem("whisper-cpp needs a model file: set TRANSCRIBER_WHISPER_CPP_MODEL")
    if engine in HEAVY and (free := _free_memory()) < min(HEAVY_MEMORY, settings.memory):
        raise Problem(f"{engine} needs 4 GB of memory, and {free / 1024**3:.1f} GB are free", "resource")


def suffix_of(engine: str) -> str:
    """Return the format of the chunks that an engine takes."""
    return ".mp3" if is_remote(engine) else ".wav"


def open_engine(engine: str, settings: Settings) -> Hear:
    """Return the function that transcribes a chunk."""
    if engine == "pocketsphinx":
        from transcriber.engines import sphinx

        return sphinx.hear
    if engine == "whisper-cpp":
        from transcriber.engines import whisper_cpp

        return whisper_cpp.opened(settings)
    if engine == "faster-whisper":
        from transcriber.engines import faster

        return faster.opened(settings)
    from transcriber.engines import remote

    assert settings.endpoint is not None
    return remote.opened(settings.endpoint, engine)


def _free_memory() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return HEAVY_MEMORY  # unknown on this system
