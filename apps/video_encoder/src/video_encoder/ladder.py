"""The HLS ladder of a video: three renditions in one run of ffmpeg, a master playlist, poster, thumbnails, mp4 fallback."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from onerow import Permanent
from video_encoder.probing import CONTAINERS, Media
from video_encoder.programs import DamagedInput, ffmpeg

MASTER, FALLBACK, POSTER = "master.m3u8", "fallback.mp4", "poster.jpg"
THUMBNAILS, THUMBNAIL_TIMES = "thumbnails.jpg", "thumbnails.vtt"
_SEGMENT_SECONDS = 4
_COLUMNS, _ROWS, _THUMBNAIL_HEIGHT = 5, 2, 90
_BITS_PER_PIXEL = 2.5  # of a second: 2.3 Mbit/s for 1280x720
_LONG = 120.0  # seconds; longer videos get thumbnails of their key frames only


class Rendition(msgspec.Struct, frozen=True):
    """One step of the ladder; its playlist is NAME/index.m3u8."""

    name: str
    width: int
    height: int

    @property
    def bit_rate(self) -> int:
        return max(64_000, int(self.width * self.height * _BITS_PER_PIXEL))

    @property
    def playlist(self) -> str:
        return f"{self.name}/index.m3u8"


class Ladder(msgspec.Struct, frozen=True):
    """An encoded video in the bucket, below `prefix`."""

    prefix: str
    renditions: list[Rendition]
    seconds: float
    audio: bool
    sizes: dict[str, int]  # bytes of each object, by its name below the prefix

    @property
    def master(self) -> str:
        return self.prefix + MASTER


def renditions(media: Media, heights: Sequence[int]) -> list[Rendition]:
    """Return the ladder of a video: the heights, of the shorter side; a smaller video gets a ladder in proportion."""
    shorter = min(media.width, media.height)
    top = max(heights)
    found = []
    for height in heights:
        side = height if shorter >= top else shorter * height / top
        scale = side / shorter
        found.append(Rendition(f"{int(side)}p", _even(media.width * scale), _even(media.height * scale)))
    return found


def encode(
    source: Path, media: Media, heights: Sequence[int], folder: Path, report: Callable[[float], None]
) -> list[Rendition]:
    """Write the ladder of a source into a folder; return its renditions."""
    steps = renditions(media, heights)
    for step in steps:
        (folder / step.name).mkdir(parents=True)
    read: list[str | Path] = ["-format_whitelist", CONTAINERS, "-i", source]
    try:
        ffmpeg([*read, *_hls(steps, folder, media)], folder / "%v" / "index.m3u8", report=report)
    except DamagedInput as error:
        raise Permanent(f"the video is damaged: {error}") from None
    _fallback(folder / steps[1].name, folder / FALLBACK)
    _stills(read, media, steps[0], folder)
    return steps


def _hls(steps: Sequence[Rendition], folder: Path, media: Media) -> list[str | Path]:
    sound = bool(media.audio)
    # Frames at a constant rate, else the last one would last as long as the one before it; the last one stays until the
    # sound ends.
    even = f"fps={media.rate}:start_time=0,tpad=stop_mode=clone:stop_duration={media.still}"
    parts = "".join(f"[s{number}]" for number in range(len(steps)))
    scales = "".join(
        f";[s{number}]scale={step.width}:{step.height},setsar=1[v{number}]" for number, step in enumerate(steps)
    )
    words: list[str | Path] = ["-filter_complex", f"[0:v:0]{even},split={len(steps)}{parts}{scales}"]
    for number, step in enumerate(steps):
        words += ["-map", f"[v{number}]", f"-b:v:{number}", str(step.bit_rate)]
        words += [f"-maxrate:v:{number}", str(step.bit_rate * 3 // 2), f"-bufsize:v:{number}", str(step.bit_rate * 2)]
        words += ["-map", "0:a:0"] if sound else []
    # Key frames at the same times in each rendition, so that a player can change between them at every segment.
    keys = ["-force_key_frames", f"expr:gte(t,n_forced*{_SEGMENT_SECONDS})", "-sc_threshold", "0"]
    picture = ["-c:v", "libx264", "-preset", "veryfast", "-profile:v", "main", "-pix_fmt", "yuv420p", *keys]
    voice = ["-c:a", "aac", "-b:a", "96k", "-ac", "2"] if sound else []
    streams = [f"v:{number}{f',a:{number}' if sound else ''},name:{step.name}" for number, step in enumerate(steps)]
    container: list[str | Path] = [
        "-f", "hls", "-hls_time", str(_SEGMENT_SECONDS), "-hls_playlist_type", "vod",
        # Not in transport streams: ffmpeg's static builds crash when they read one.
        "-hls_segment_type", "fmp4", "-hls_fmp4_init_filename", "init.mp4", "-hls_flags", "independent_segments", "-hls_segment_filename", folder / "%v" / "%05d.m4s",
        "-master_pl_name", MASTER, "-var_stream_map", " ".join(streams),
    ]  # fmt: skip
    return [*words, *picture, *voice, *container]


def join(init: Path, segments: Iterable[Path], target: Path) -> Path:
    """Write the beginning of a rendition and some of its segments into one file, which is an mp4."""
    with target.open("wb") as file:
        for path in (init, *segments):
            with path.open("rb") as part:
                shutil.copyfileobj(part, file, 1024 * 1024)
    return target


def _fallback(rendition: Path, target: Path) -> None:
    """Make an mp4 of a rendition, without encoding it again."""
    (init,) = rendition.glob("init*.mp4")
    joined = join(init, sorted(rendition.glob("*.m4s")), rendition / "joined.mp4")
    ffmpeg(["-i", joined, "-c", "copy", "-movflags", "+faststart", "-f", "mp4"], target)
    joined.unlink()


def _stills(read: Sequence[str | Path], media: Media, top: Rendition, folder: Path) -> None:
    """Write the poster, and the thumbnails of the fallback as one picture with the times of its parts."""
    # The key frame before a third of its length; after it a short clip may have no frame.
    at = ["-noaccurate_seek", "-ss", f"{(media.seconds - media.still) / 3:.3f}"]
    ffmpeg([*at, *read, "-frames:v", "1", "-vf", f"scale={top.width}:{top.height}"], folder / POSTER)
    width = _even(_THUMBNAIL_HEIGHT * media.width / media.height)
    count = _COLUMNS * _ROWS
    quick = ["-skip_frame", "nokey"] if media.seconds > _LONG else []
    # `round=up` would need a frame after the last one.
    shown = f"fps={count}/{media.seconds}:round=down,scale={width}:{_THUMBNAIL_HEIGHT},tile={_COLUMNS}x{_ROWS}"
    ffmpeg([*quick, "-i", folder / FALLBACK, "-frames:v", "1", "-vf", shown], folder / THUMBNAILS)
    lines = ["WEBVTT"]
    for number in range(count):
        start, end = (_time(media.seconds * part / count) for part in (number, number + 1))
        x, y = number % _COLUMNS * width, number // _COLUMNS * _THUMBNAIL_HEIGHT
        lines.append(f"{start} --> {end}\n{THUMBNAILS}#xywh={x},{y},{width},{_THUMBNAIL_HEIGHT}")
    (folder / THUMBNAIL_TIMES).write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}.{rest % 1000:03}"


def _even(pixels: float) -> int:
    return max(2, round(pixels / 2) * 2)
