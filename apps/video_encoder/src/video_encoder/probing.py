"""What a media file contains, as ffprobe sees it."""

from pathlib import Path
from typing import Any

import msgspec

from onerow import Permanent
from video_encoder.programs import ProgramFailed, ffprobe

CONTAINERS = "mov,mp4,matroska,webm,avi,flv,ogg,asf,mxf"
"""Formats of uploads. Not among them: playlists, which make ffmpeg read other files of this host and of its network, and
transport streams, on which its static builds crash."""
SMALLEST = 48
"""Pixels of the shorter side: three different renditions need that."""


class Media(msgspec.Struct, frozen=True):
    """A media file: size of the picture as it is shown, length in seconds, codecs."""

    width: int
    height: int
    seconds: float
    video: str
    audio: str  # '' without sound


class _Stream(msgspec.Struct):
    codec_type: str = ""
    codec_name: str = ""
    width: int = 0
    height: int = 0
    disposition: dict[str, int] = {}
    side_data_list: list[dict[str, Any]] = []

    @property
    def is_picture(self) -> bool:
        return self.codec_type == "video" and not self.disposition.get("attached_pic")

    @property
    def turned(self) -> bool:
        """Whether players turn the picture by a quarter, as those of phones."""
        return any(abs(int(data.get("rotation", 0))) % 180 == 90 for data in self.side_data_list)


class _Format(msgspec.Struct, frozen=True):
    duration: str = ""


class _Answer(msgspec.Struct):
    streams: list[_Stream] = []
    format: _Format = _Format()


def probe(path: Path, *options: str) -> Media:
    """Return what a file contains; raise ProgramFailed if it can't be read, or has no picture or no length."""
    shown = ["-show_streams", "-show_format", "-of", "json"]
    answer = msgspec.json.decode(ffprobe([*options, *shown, path]), type=_Answer)
    pictures = [stream for stream in answer.streams if stream.is_picture and stream.width and stream.height]
    sounds = [stream.codec_name for stream in answer.streams if stream.codec_type == "audio"]
    if not pictures:
        raise ProgramFailed("it has no video stream")
    first = pictures[0]
    width, height = (first.height, first.width) if first.turned else (first.width, first.height)
    try:
        seconds = float(answer.format.duration)
    except ValueError:
        raise ProgramFailed("its length is unknown") from None
    return Media(width, height, round(seconds, 3), first.codec_name, sounds[0] if sounds else "")


def probe_upload(path: Path, name: str) -> Media:
    """Return what an upload contains; raise a permanent error if it is no video that can be encoded."""
    try:
        media = probe(path, "-format_whitelist", CONTAINERS)
    except ProgramFailed as error:
        # The path of the work folder says nothing to the person who uploaded it.
        raise Permanent(f"{name} is not a video: {str(error).replace(str(path), name)}") from None
    if min(media.width, media.height) < SMALLEST or media.seconds <= 0:
        raise Permanent(
            f"{name} has {media.width}x{media.height} pixels and {media.seconds:g} s; "
            f"a video needs {SMALLEST} pixels on its shorter side, and a length"
        )
    return media
