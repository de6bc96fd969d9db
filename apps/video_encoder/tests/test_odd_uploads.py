"""Uploads that differ from what a camera writes: each becomes a ladder as long as itself, or is refused for good."""

import re
from pathlib import Path

import pytest

from onerow import Permanent
from video_encoder.ladder import FALLBACK, POSTER, THUMBNAILS, encode
from video_encoder.offline import clips
from video_encoder.probing import probe, probe_upload
from video_encoder.programs import ProgramFailed, ffmpeg, find_program

TONE = ["-f", "lavfi", "-i", "sine=sample_rate=44100:duration=4"]
X264 = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"]


def card(seconds: int, rate: int = 30) -> list[str]:
    return ["-f", "lavfi", "-i", f"testsrc2=size=160x90:rate={rate}:duration={seconds}"]


CLIPS: dict[str, tuple[list[str], str, float]] = {
    "one frame": ([*card(1), "-frames:v", "1", *X264], "mp4", 0.03),
    "a frame each half minute": (
        [*card(31), "-vf", "select=not(mod(n\\,900))", "-fps_mode", "vfr", *X264], "mp4", 30.03
    ),
    "motion, then a still screen": (
        [*card(20), "-vf", "select=lt(n\\,30)+eq(n\\,500)+eq(n\\,598)", "-fps_mode", "vfr", *X264], "mp4", 19.97
    ),
    "sound after the picture": ([*card(1), *TONE, *X264], "mp4", 4.0),
    "sound after the picture, in matroska": ([*card(1), *TONE, *X264], "mkv", 4.0),
    "no length, as a browser records": ([*card(1), "-c:v", "libvpx", "-f", "webm", "-live", "1"], "webm", 1.0),
    "ten bits": ([*card(1), "-c:v", "libx264", "-pix_fmt", "yuv420p10le"], "mkv", 1.0),
}  # fmt: skip


@pytest.mark.parametrize("clip", CLIPS)
def test_an_odd_clip_becomes_a_ladder_as_long_as_itself(clip: str, tmp_path: Path) -> None:
    words, ending, seconds = CLIPS[clip]
    source = tmp_path / f"-a %d.{ending}"
    ffmpeg(words, source)
    media = probe_upload(source, source.name)
    assert media.seconds == pytest.approx(seconds, abs=0.1)
    steps = encode(source, media, (72, 60, 48), tmp_path / "hls", lambda done: None)
    for step in steps:
        lengths = re.findall(r"#EXTINF:([\d.]+)", (tmp_path / "hls" / step.playlist).read_text())
        assert sum(map(float, lengths)) == pytest.approx(seconds, abs=0.6)
    for name in (FALLBACK, POSTER, THUMBNAILS):
        assert probe(tmp_path / "hls" / name).width > 0


def test_a_player_that_turns_the_picture_gets_a_ladder_of_that_shape(clip: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned.mp4"
    ffmpeg(["-display_rotation", "90", "-i", clip, "-c", "copy"], turned)
    media = probe_upload(turned, turned.name)
    assert (media.width, media.height) == (90, 160)
    encode(turned, media, (72, 60, 48), tmp_path / "hls", lambda done: None)
    seen = probe(tmp_path / "hls" / FALLBACK)
    assert (seen.width, seen.height) == (60, 106)


def test_a_picture_that_would_need_gigabytes_of_memory_is_refused(tmp_path: Path) -> None:
    huge = tmp_path / "huge.mp4"
    ffmpeg(["-f", "lavfi", "-i", "color=size=8192x8192:rate=1:duration=1", "-c:v", "mjpeg"], huge)
    with pytest.raises(Permanent, match="8192x8192 pixels"):
        probe_upload(huge, huge.name)


def test_a_damaged_video_is_refused_for_good(tmp_path: Path) -> None:
    """ffmpeg ends with the same error each time, so that further attempts would cost hours and change nothing."""
    damaged = clips.draw(tmp_path / "damaged.mp4")
    content = bytearray(damaged.read_bytes())
    begin = content.find(b"mdat") + 200
    content[begin : content.find(b"moov")] = b"\xa5" * (content.find(b"moov") - begin)
    damaged.write_bytes(content)
    with pytest.raises(Permanent, match="damaged") as raised:
        encode(damaged, probe_upload(damaged, "damaged.mp4"), (72, 60, 48), tmp_path / "hls", lambda done: None)
    assert "0x" not in str(raised.value)


def test_an_error_of_the_disk_or_a_kill_is_not_held_against_the_video(tmp_path: Path) -> None:
    program = tmp_path / "ffmpeg"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENCODER_FFMPEG", str(program))
        find_program.cache_clear()
        for says, ends, raised in [
            ("Invalid data found; No space left on device", "exit 1", OSError),
            ("No space left on device", "exit 0", OSError),
            ("Invalid data found", "kill -9 $$", ProgramFailed),
            ("Cannot allocate memory", "exit 1", ProgramFailed),
        ]:
            program.write_text(f"#!/bin/sh\necho '{says}' >&2\n{ends}\n")
            program.chmod(0o755)
            with pytest.raises(raised):
                ffmpeg([], tmp_path / "out.mp4")
    find_program.cache_clear()
