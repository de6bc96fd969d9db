"""Audio with ffmpeg: the sound of a file as 16 kHz mono, silences in it, and chunks that are cut at them."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from transcriber.problems import Problem
from transcriber.settings import Settings
from transcriber.steps import draft_of

MP3_BYTES_PER_SECOND = 8_000
"""Of a chunk for an endpoint: mono, 64 kbit/s."""
_SILENCE = "silencedetect=noise=-35dB:d=0.3"
_START = re.compile(r"silence_start: (-?[\d.]+)")
_END = re.compile(r"silence_end: ([\d.]+)")
_NOWHERE = ("-f", "null", "-")
_SUBTITLES = re.compile(r"Stream #0:\d+(?:\[\w+\])?(?:\((\w+)\))?: Subtitle: (\w+)")
_FULL = re.compile("No space left on device|Disk quota exceeded|Cannot allocate memory")
_TIME = re.compile(r"time=(\d+):(\d+):(\d+(?:\.\d+)?)")
_SHORTEST = 0.5  # a cut comes at a silence in the second half of the longest chunk, if there is one
_LEAST = 1.0  # seconds of the last chunk of several


class Span(NamedTuple):
    """A part of the audio, in seconds."""

    start: float
    end: float


def chunks(duration: float, silences: Sequence[Span], longest: float) -> list[Span]:
    """Return parts of at most `longest` seconds that cover the whole duration, cut in silences where there are any.

    The last part is no remnant of a few samples, which endpoints refuse.
    """
    middles = [(silence.start + silence.end) / 2 for silence in silences]
    parts: list[Span] = []
    start = 0.0
    while duration - start > longest:
        limit = min(start + longest, duration - min(_LEAST, longest * _SHORTEST))
        near = [middle for middle in middles if start + longest * _SHORTEST <= middle <= limit]
        end = near[-1] if near else limit
        parts.append(Span(start, end))
        start = end
    return [*parts, Span(start, duration)]


def speech_in(span: Span, silences: Sequence[Span]) -> list[Span]:
    """Return the parts of a span between its silences; the whole span if it is silent."""
    found: list[Span] = []
    start = span.start
    for silence in [*silences, Span(span.end, span.end)]:
        end = min(silence.start, span.end)
        if end > start:
            found.append(Span(start, end))
        start = max(start, silence.end)
    return found or [span]


def extract_audio(settings: Settings, source: Path, target: Path) -> None:
    """Write the sound of a media file as 16 kHz mono FLAC."""
    _convert(settings, source, target, ["-vn", "-sn", "-ac", "1", "-ar", "16000", "-c:a", "flac", "-f", "flac"])


def subtitles_in(settings: Settings, source: Path) -> list[tuple[str, str]]:
    """Return the language (such as 'eng', or '') and the format of each track of subtitles in a media file."""
    said = _run(settings, ["-t", "0", "-i", f"file:{source}", "-map", "0:s?", "-map", "0:a?", "-c", "copy", *_NOWHERE])
    return _SUBTITLES.findall(said.partition("Output #0")[2])


def extract_subtitles(settings: Settings, source: Path, number: int, target: Path) -> None:
    """Write a track of subtitles of a media file as SubRip."""
    _convert(settings, source, target, ["-map", f"0:s:{number}", "-f", "srt"])


def cut(settings: Settings, audio: Path, span: Span, target: Path) -> None:
    """Write a part of the audio, as WAV or MP3 by the name of the target."""
    how = (
        ["-c:a", "libmp3lame", "-b:a", "64k", "-f", "mp3"]
        if target.suffix == ".mp3"
        else ["-c:a", "pcm_s16le", "-f", "wav"]
    )
    _convert(settings, audio, target, how, ["-ss", f"{span.start:.3f}", "-t", f"{span.end - span.start:.3f}"])


def listen(settings: Settings, audio: Path) -> tuple[float, list[Span]]:
    """Return the duration of an audio file and its silences."""
    said = _run(settings, ["-i", f"file:{audio}", "-af", _SILENCE, *_NOWHERE])
    times = _TIME.findall(said)
    if not times:
        raise Problem(f"{audio.name} has no sound")
    hours, minutes, seconds = times[-1]
    duration = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    starts = [max(0.0, float(start)) for start in _START.findall(said)]
    ends = [float(end) for end in _END.findall(said)]
    return duration, [Span(start, end) for start, end in zip(starts, [*ends, duration], strict=False)]


def _convert(settings: Settings, source: Path, target: Path, how: Sequence[str], part: Sequence[str] = ()) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(target)
    try:
        # 'file:' keeps a name such as 'concat:a' or '-a' from being read as something else.
        _run(settings, [*part, "-i", f"file:{source}", *how, "-y", f"file:{draft}"])
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _run(settings: Settings, arguments: Sequence[str]) -> str:
    argv = [_program(settings), "-hide_banner", "-nostdin", "-protocol_whitelist", "file,pipe,crypto,data", *arguments]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise Problem(f"{argv[0]} can't be started: {error.strerror}; set TRANSCRIBER_FFMPEG") from None
    if done.returncode:
        if full := _FULL.search(done.stderr):
            raise Problem(f"ffmpeg: {full[0]}", "resource")
        if done.returncode < 0:
            raise Problem(f"ffmpeg was ended by signal {-done.returncode}", "resource")
        if "does not contain any stream" in done.stderr:
            raise Problem("the file has no sound")
        raise Problem(f"ffmpeg can't read it: {done.stderr.strip().rpartition(chr(10))[2][-300:]}")
    return done.stderr


def _program(settings: Settings) -> str:
    if settings.ffmpeg:
        return settings.ffmpeg
    import imageio_ffmpeg

    return str(imageio_ffmpeg.get_ffmpeg_exe())
