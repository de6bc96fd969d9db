"""Transcripts as timed segments: SRT and WebVTT in and out, and plain text."""

import html
import re
from collections.abc import Sequence

import msgspec

_TIMES = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2})[.,](\d{3})\s+-->\s+(?:(\d+):)?(\d{1,2}):(\d{2})[.,](\d{3})")
_TAG = re.compile(r"<[^>\n]{0,200}>|\{\\[^}\n]{0,200}\}")
_PAUSE = 2.0  # seconds of silence that begin a new paragraph


class Segment(msgspec.Struct, frozen=True):
    """Words from `start` to `end`, in seconds."""

    start: float
    end: float
    text: str


def read_captions(text: str) -> list[Segment]:
    """Return the cues of an SRT or WebVTT file, without markup and without lines that captions repeat as they scroll."""
    segments: list[Segment] = []
    for block in re.split(r"\r?\n[ \t]*\r?\n", text.removeprefix("\ufeff")):
        lines = block.strip("\r\n").splitlines()
        at = next((number for number, line in enumerate(lines) if _TIMES.search(line)), None)
        if at is None or (found := _TIMES.search(lines[at])) is None:
            continue
        words = [html.unescape(_TAG.sub("", line)).strip() for line in lines[at + 1 :]]
        before = segments[-1].text.splitlines()[-1:] if segments else []
        fresh = [word for word in words if word and [word] != before]
        if fresh:
            start, end = _seconds(found.groups()[:4]), _seconds(found.groups()[4:])
            segments.append(Segment(start, max(start, end), "\n".join(fresh)))
    return [Segment(each.start, each.end, " ".join(each.text.split())) for each in segments]


def _seconds(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds, thousandths = (int(part or 0) for part in parts)
    return hours * 3600 + minutes * 60 + seconds + thousandths / 1000


def write_srt(segments: Sequence[Segment]) -> str:
    """Return the segments as SubRip."""
    cues = [
        f"{number}\n{_time(each.start, ',')} --> {_time(each.end, ',')}\n{each.text}\n"
        for number, each in enumerate(segments, 1)
    ]
    return "\n".join(cues)


def write_vtt(segments: Sequence[Segment]) -> str:
    """Return the segments as WebVTT."""
    cues = [
        f"{_time(each.start, '.')} --> {_time(each.end, '.')}\n{html.escape(each.text, quote=False)}\n"
        for each in segments
    ]
    return "\n".join(["WEBVTT\n", *cues])


def write_text(segments: Sequence[Segment], *, timestamps: bool) -> str:
    """Return the words as text: a line with its time for each segment, or paragraphs that end at pauses."""
    if timestamps:
        return "".join(f"[{_time(each.start, '.')[:8]}] {each.text}\n" for each in segments)
    text = ""
    for number, each in enumerate(segments):
        pause = each.start - segments[number - 1].end if number else 0.0
        text += ("" if not number else "\n\n" if pause >= _PAUSE else " ") + each.text
    return f"{text}\n"


def _time(seconds: float, point: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{point}{thousandths:03d}"
