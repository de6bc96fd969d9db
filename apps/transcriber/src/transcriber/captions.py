"""Transcripts as timed segments: SRT and WebVTT in and out, and plain text."""

import codecs
import html
import re
from collections.abc import Sequence
from itertools import pairwise, takewhile

import msgspec

_POINT = r"(?:(\d+):)?(\d{1,2}):(\d{2})(?:[.,](\d{1,3}))?"
_TIMES = re.compile(rf"\s*-?{_POINT}\s*-->\s*{_POINT}(?:\s.*)?")
_TAG = re.compile(r"</?[A-Za-z][^>\n]{0,200}>|<[\d:.]{5,20}>|\{\\[^}\n]{0,200}\}")
_OLDER = {"ko": "cp949", "ja": "cp932", "zh": "gb18030"}
_SCROLL = 0.1  # seconds within which a cue follows the one whose last line it repeats
_PAUSE = 2.0  # seconds of silence that begin a new paragraph


class Segment(msgspec.Struct, frozen=True):
    """Words from `start` to `end`, in seconds."""

    start: float
    end: float
    text: str


def decoded(body: bytes, language: str = "") -> str:
    """Return a text file as text; one that is not Unicode is read as older programs for the language write it."""
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return body.decode("utf-16", "replace")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body.decode(_OLDER.get(language[:2], "cp1252"), "replace")


def read_captions(text: str) -> list[Segment]:
    """Return the cues of an SRT or WebVTT file, without markup and without lines that captions repeat as they scroll."""
    segments: list[Segment] = []
    lines = text.removeprefix("\ufeff").splitlines()
    starts = [number for number, line in enumerate(lines) if _TIMES.fullmatch(line)]
    for at, following in pairwise([*starts, len(lines) + 1]):
        if (found := _TIMES.fullmatch(lines[at])) is None:
            continue
        start, end = _seconds(found.groups()[:4]), _seconds(found.groups()[4:])
        own = lines[at + 1 : following - 1]  # without the number of the next cue
        if following <= len(lines) and lines[following - 1].strip() and not lines[following - 1].strip().isdigit():
            own.append(lines[following - 1])  # the next cue has no number
        words = [html.unescape(_TAG.sub("", line)).strip() for line in takewhile(bool, own)]
        scrolls = bool(segments) and start <= segments[-1].end + _SCROLL
        before = segments[-1].text.splitlines()[-1:] if scrolls else []
        if fresh := [word for word in words if word and [word] != before]:
            segments.append(Segment(start, max(start, end), "\n".join(fresh)))
    return [Segment(each.start, each.end, " ".join(each.text.split())) for each in segments]


def _seconds(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds = (int(part or 0) for part in parts[:3])
    return hours * 3600 + minutes * 60 + seconds + int((parts[3] or "").ljust(3, "0")) / 1000


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
