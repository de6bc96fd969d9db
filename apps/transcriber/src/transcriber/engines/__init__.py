"""Engines of transcription: what each needs, and which of them hear audio."""

import shutil
from collections.abc import Callable
from pathlib import Path

from onerow.core.sizes import spell_size
from transcriber.captions import Segment
from transcriber.problems import Problem
from transcriber.settings import Settings

HEAVY = ("whisper-cpp", "faster-whisper")
"""Engines that load a large model: their jobs are counted against the host's memory."""
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
            f"no endpoint for {engine!r}: set OPENAI_API_KEY, or TRANSCRIBER_OPENAI_BASE_URL; "
            f"engines that need none are {known}"
        )
    if engine == "whisper-cpp":
        if shutil.which(settings.whisper_cpp) is None:
            raise Problem(f"there is no program {settings.whisper_cpp!r}: set TRANSCRIBER_WHISPER_CPP")
        if not Path(settings.whisper_cpp_model).is_file():
            raise Problem("whisper-cpp needs a model file: set TRANSCRIBER_WHISPER_CPP_MODEL")
    need = min(settings.job_memory, settings.memory)
    if engine in HEAVY and (free := _free_memory()) is not None and free < need:
        raise Problem(f"{engine} needs {spell_size(need)} of memory, and {spell_size(free)} are free", "resource")


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
    return remote.opened(settings.endpoint, engine, settings.language)


def _free_memory() -> int | None:
    """Return the bytes that new programs may use; None where the system does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
