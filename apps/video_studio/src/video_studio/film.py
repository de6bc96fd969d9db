"""Renders the mp4: frames are piped to ffmpeg with progress; the file gets its name only when it is complete."""

import errno
import glob
import subprocess
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO

import msgspec
from imageio_ffmpeg import get_ffmpeg_exe

from onerow import Context
from video_studio.places import inside, partial
from video_studio.script import Script
from video_studio.settings import Look, Settings
from video_studio.shots import Shots


class Film(msgspec.Struct, frozen=True):
    """A finished film: its file name in the folder of videos, and its checksum."""

    file: str
    size: int
    sha256: str
    seconds: float


def make_film(script: Script, pictures: Sequence[Path], settings: Settings, ctx: Context) -> Film:
    """Render and encode a film; a stop also ends ffmpeg and deletes the partial file."""
    look = settings.look
    shots = Shots(script, pictures, look, settings.font)
    if shots.missing:
        ctx.log(
            f"no font on this machine has {' '.join(shots.missing)}; what can be spelt in Latin letters is, the rest is "
            "left out or a box. Install a font that has them (such as Noto Sans CJK), or name one in STUDIO_FONT",
            level="warning",
        )
    name = f"{ctx.task_id}-{ctx.task.generation}.mp4"
    settings.films.mkdir(parents=True, exist_ok=True)
    target = inside(settings.films, name)
    for left in settings.films.glob(f".{glob.escape(name)}.*.part"):
        left.unlink(missing_ok=True)  # left by a killed attempt; the lease excludes other attempts
    copy = partial(target)
    try:
        with tempfile.TemporaryFile() as said:
            _encode(shots, copy, script.title, look, said, ctx)
        film = Film(name, copy.stat().st_size, _digest(copy), round(len(shots) / look.fps, 3))
        copy.replace(target)
    finally:
        copy.unlink(missing_ok=True)
    ctx.log(f"video: {film.seconds:g} s, {film.size:,} bytes, {name}")
    return film


def _encode(shots: Shots, target: Path, title: str, look: Look, said: IO[bytes], ctx: Context) -> None:
    with subprocess.Popen(_command(target, title, look), stdin=subprocess.PIPE, stdout=said, stderr=said) as ffmpeg:
        assert ffmpeg.stdin is not None
        try:
            for frame in ctx.track(shots, total=len(shots), note="frames"):
                ffmpeg.stdin.write(frame)
            ffmpeg.stdin.close()
        except BrokenPipeError:
            pass  # ffmpeg failed; its exit code and last output are read below
        except BaseException:
            ffmpeg.kill()
            raise
        code = ffmpeg.wait()
    if code != 0:
        said.seek(0)
        words = said.read()[-2000:].decode(errors="replace").strip()
        if "No space left" in words:
            raise OSError(errno.ENOSPC, "no room is left for the video", str(target.parent))
        raise RuntimeError(f"ffmpeg ended with code {code}: {words or 'it said nothing'}")


def _command(target: Path, title: str, look: Look) -> list[str]:
    frames = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-s",
        f"{look.width}x{look.height}",
        "-r",
        str(look.fps),
        "-i",
        "-",
    ]
    silence = ["-f", "lavfi", "-i", "anullsrc=channel_layout=stereo:sample_rate=44100"]
    picture = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p"]
    sound = ["-c:a", "aac", "-b:a", "64k", "-shortest"]
    rest = ["-movflags", "+faststart", "-metadata", f"title={title}", "-f", "mp4", "-y", str(target)]
    return [get_ffmpeg_exe(), "-hide_banner", "-loglevel", "error", *frames, *silence, *picture, *sound, *rest]


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while piece := file.read(1024 * 1024):
            digest.update(piece)
    return digest.hexdigest()
