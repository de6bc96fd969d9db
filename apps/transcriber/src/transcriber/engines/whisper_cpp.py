"""The engine whisper-cpp: the program whisper-cli of whisper.cpp with a ggml model."""

import subprocess
from pathlib import Path

import msgspec

from transcriber.captions import Segment
from transcriber.problems import Problem
from transcriber.settings import Settings


def opened(settings: Settings) -> "WhisperCpp":
    return WhisperCpp(settings)


class _Offsets(msgspec.Struct):
    begin: float = msgspec.field(name="from")
    end: float = msgspec.field(name="to")


class _Line(msgspec.Struct):
    offsets: _Offsets
    text: str


class _Found(msgspec.Struct):
    transcription: list[_Line]


class WhisperCpp:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, chunk: Path, key: str) -> list[Segment]:
        output = chunk.with_suffix("")  # whisper-cli appends .json
        argv = [self._settings.whisper_cpp, "-m", self._settings.whisper_cpp_model, "-f", str(chunk)]
        argv += ["-l", self._settings.language, "-np", "-oj", "-of", str(output)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True)
        written = output.with_name(f"{output.name}.json")
        if done.returncode or not written.is_file():
            said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            error_class = "resource" if done.returncode < 0 else "unknown"
            raise Problem(f"{self._settings.whisper_cpp} failed: {said[-300:]}", error_class)
        try:
            found = msgspec.json.decode(written.read_bytes().decode("utf-8", "replace"), type=_Found)
        except msgspec.MsgspecError as error:
            raise Problem(f"{self._settings.whisper_cpp} wrote no transcript: {error}", "unknown") from None
        finally:
            written.unlink()
        lines = [(each.offsets, each.text.strip()) for each in found.transcription]
        return [Segment(at.begin / 1000, at.end / 1000, text) for at, text in lines if text]
