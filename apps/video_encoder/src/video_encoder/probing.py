"""What a media file contains, as ffprobe sees it."""

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from onerow import Permanent
from video_encoder.programs import ProgramFailed, ffmpeg, ffprobe

CONTAINERS = "mov,mp4,matroska,webm,avi,flv,ogg,asf,mxf"
"""Formats of uploads. Not among them: playlists, which make ffmpeg read other files of this host and of its network, and
transport streams, on which its static builds crash."""
SMALLEST = 48
"""Pixels of the shorter side: three different renditions need that."""
LARGEST = 8192 * 4320
"""Pixels of a picture. A small file can declare a picture that needs gigabytes of memory."""
_SLOWEST, _FASTEST, _USUAL = Fraction(2), Fraction(60), Fraction(30)  # frames per second

_MATROSKA_TIME = re.compile(r"(\d+):(\d+):(\d+(?:\.\d+)?)")


class Media(msgspec.Struct, frozen=True):
    """A media file: size of the picture as it is shown, length in seconds, codecs."""

    width: int
    height: int
    seconds: float  # 0 if the file does not tell
    video: str
    audio: str  # '' without sound
    rate: str = "30"  # frames per second
    still: float = 0.0  # seconds at the end that have sound and no picture


class _Stream(msgspec.Struct):
    codec_type: str = ""
    codec_name: str = ""
    width: int = 0
    height: int = 0
    duration: str = ""
    start_time: str = ""
    r_frame_rate: str = ""
    tags: dict[str, str] = {}
    disposition: dict[str, int] = {}
    side_data_list: list[dict[str, Any]] = []

    @property
    def is_picture(self) -> bool:
        return self.codec_type == "video" and not self.disposition.get("attached_pic")

    @property
    def turned(self) -> bool:
        """Whether players turn the picture by a quarter, as those of phones."""
        return any(abs(int(data.get("rotation", 0))) % 180 == 90 for data in self.side_data_list)

    @property
    def rate(self) -> Fraction:
        """Frames per second for the encode. Some files have a frame each minute, others declare a thousand a second."""
        frames, _, seconds = self.r_frame_rate.partition("/")
        known = frames.isdigit() and seconds.isdigit() and int(frames) and int(seconds)
        return min(max(Fraction(int(frames), int(seconds)), _SLOWEST), _FASTEST) if known else _USUAL

    @property
    def end(self) -> float | None:
        """Seconds at which it ends, if the file tells."""
        if self.duration:
            return float(self.start_time or 0) + float(self.duration)
        tag = _MATROSKA_TIME.fullmatch(self.tags.get("DURATION", ""))
        return int(tag[1]) * 3600 + int(tag[2]) * 60 + float(tag[3]) if tag else None


class _Format(msgspec.Struct, frozen=True):
    duration: str = ""


class _Answer(msgspec.Struct):
    streams: list[_Stream] = []
    format: _Format = _Format()


def probe(path: Path, *options: str) -> Media:
    """Return what a file contains; raise ProgramFailed if it can't be read, or has no picture."""
    shown = ["-show_streams", "-show_format", "-of", "json"]
    answer = msgspec.json.decode(ffprobe([*options, *shown, path]), type=_Answer)
    pictures = [stream for stream in answer.streams if stream.is_picture and stream.width and stream.height]
    sounds = [stream.codec_name for stream in answer.streams if stream.codec_type == "audio"]
    if not pictures:
        raise ProgramFailed("it has no video stream")
    first = pictures[0]
    width, height = (first.height, first.width) if first.turned else (first.width, first.height)
    seconds = round(float(answer.format.duration or 0), 3)
    still = max(0.0, round(seconds - (first.end or seconds), 3))
    return Media(width, height, seconds, first.codec_name, sounds[0] if sounds else "", str(first.rate), still)


def probe_upload(path: Path, name: str) -> Media:
    """Return what an upload contains; raise a permanent error if it is no video that can be encoded."""
    try:
        media = probe(path, "-format_whitelist", CONTAINERS)
        if not media.seconds:
            media = msgspec.structs.replace(media, seconds=_measure(path))
    except ProgramFailed as error:
        # The path of the work folder says nothing to the person who uploaded it.
        raise Permanent(f"{name} is not a video: {str(error).replace(str(path), name)}") from None
    if min(media.width, media.height) < SMALLEST or media.width * media.height > LARGEST or media.seconds <= 0:
        raise Permanent(
            f"{name} has {media.width}x{media.height} pixels and {media.seconds:g} s; "
            f"a video needs {SMALLEST} pixels on its shorter side, at most {LARGEST:,} in all, and a length"
        )
    return media


def _measure(path: Path) -> float:
    """Return the length of a file that does not tell it, as those that a browser records; all of it is read."""
    ends = [0.0]
    ffmpeg(["-format_whitelist", CONTAINERS, "-i", path, "-c", "copy", "-f", "null"], Path("-"), report=ends.append)
    return round(ends[-1], 3)
