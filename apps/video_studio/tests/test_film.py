"""Films: real mp4 files, complete or absent, with text in any writing system."""

import subprocess
from pathlib import Path

import pytest
from imageio_ffmpeg import get_ffmpeg_exe
from PIL import Image, ImageChops

from apps.video_studio.tests.kit import picture, work
from onerow import Queue
from video_studio import add_video
from video_studio.drawing import draw_scene
from video_studio.film import Film
from video_studio.fonts import Fonts
from video_studio.lettering import Lettering
from video_studio.script import Scene, Script
from video_studio.settings import Look, Settings
from video_studio.shots import Shots


def probe(file: Path) -> str:
    return subprocess.run([get_ffmpeg_exe(), "-i", str(file)], capture_output=True, text=True, check=False).stderr


def frame_at(file: Path, second: float, target: Path) -> Image.Image:
    argv = [get_ffmpeg_exe(), "-v", "error", "-ss", str(second), "-i", str(file), "-frames:v", "1", "-y", str(target)]
    subprocess.run(argv, check=True, timeout=900)
    return Image.open(target).convert("RGB")


@pytest.mark.contract("The video is a real mp4 made with ffmpeg.", "Results are kept.")
def test_the_video_is_a_real_mp4_with_title_scenes_and_captions_and_progress(
    queue: Queue, home: Path, tmp_path: Path
) -> None:
    task = add_video("tides", draw=True)
    work()
    done = queue.get(task.task_id)
    film = done.results["video"]
    file = home / "videos" / film["file"]
    assert file.stat().st_size == film["size"]
    facts = probe(file)
    assert "Video: h264" in facts
    assert "320x180" in facts
    assert "Audio: aac" in facts
    assert "title           : Tides" in facts
    assert "Duration: 00:00:02" in facts or "Duration: 00:00:03" in facts
    # Two different frames: the title card, and the first scene with its caption.
    title, scene = frame_at(file, 0.05, tmp_path / "1.png"), frame_at(file, 0.8, tmp_path / "2.png")
    assert ImageChops.difference(title, scene).getbbox() is not None
    assert done.results["script"]["title"] == "Tides"
    assert [path.name for path in (home / "videos").iterdir()] == [film["file"]]
    lines = [line.text for line in queue.logs(task.task_id).lines]
    assert any(line.startswith("video: ") for line in lines)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_any_number_of_pictures_is_shared_out_over_scenes_that_last_as_long_as_they_say(
    tmp_path: Path, count: int
) -> None:
    files = [picture(tmp_path / f"{n}.png", colour) for n, colour in zip(range(count), ["red"] * 7, strict=False)]
    script = Script("T", "D", [Scene("a", "b", 3.0), Scene("c", "d", 4.0), Scene("e", "f", 3.0)])
    look = Look(64, 36, 10)
    shots = Shots(script, files, look, None)
    frames = list(shots)
    assert len(frames) == len(shots)
    assert {len(frame) for frame in frames} == {64 * 36 * 3}
    assert len(shots) == pytest.approx(script.seconds * look.fps, abs=3)


def test_pictures_of_any_shape_and_mode_are_shown(tmp_path: Path) -> None:
    files = []
    for number, (mode, size) in enumerate([("L", (10, 900)), ("RGBA", (900, 10)), ("P", (30, 30)), ("1", (5, 5))]):
        Image.new(mode, size).save(tmp_path / f"{number}.png")
        files.append(tmp_path / f"{number}.png")
    script = Script("T", "D", [Scene("a", "b", 3.0)] * 4)
    assert list(Shots(script, files, Look(64, 36, 5), None))


def test_letters_that_no_font_has_are_spelt_or_left_out_and_named_in_the_log(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("video_studio.fonts._FOLDERS", ())
    from video_studio import fonts

    fonts._installed.cache_clear()
    try:
        shown, missing = Fonts().shown("조수와 달 カキ 潮 🌊 ok 👨‍👩‍👧\u200f")
        assert shown == "josuwa dal kaki □ ok"
        assert missing == "조수와달カキ潮🌊👨👩👧"
        lettering = Lettering(Fonts())
        page = Image.new("RGBA", (200, 50))
        lettering.write(page, (0, 40), lettering.prepare("조수와 달 🌊"), 20)
        assert page.getbbox() is not None
        assert lettering.missing == "조수와달🌊"
    finally:
        fonts._installed.cache_clear()


def test_a_film_about_any_topic_is_made_and_says_which_letters_it_could_not_show(queue: Queue) -> None:
    task = add_video("조수와 달 🌊 潮の満ち引き \U0010fffd", draw=True)
    work()
    done = queue.get(task.task_id)
    assert (done.status, done.error) == ("completed", None)
    warned = [line.text for line in queue.logs(task.task_id).lines if line.level == "warning"]
    assert len(warned) == 1
    assert "\U0010fffd" in warned[0]
    assert "STUDIO_FONT" in warned[0]


def test_text_is_broken_into_lines_that_fit_whatever_its_script() -> None:
    lettering = Lettering(Fonts())
    for text in ("many words in a row that need several lines", "□" * 60, "x" * 300, "one"):
        lines = lettering.lines(text, 20, 200, 3)
        assert 1 <= len(lines) <= 3
        assert all(lettering.width(line, 20) <= 200 for line in lines)
    assert lettering.lines("short text", 20, 500, 3) == ["short text"]
    assert lettering.lines("", 20, 500, 3) == [""]


def test_the_same_title_and_scene_give_the_same_picture() -> None:
    look = Look(64, 36, 10)
    assert draw_scene("a", 1, look).tobytes() == draw_scene("a", 1, look).tobytes()
    assert draw_scene("a", 1, look).tobytes() != draw_scene("a", 2, look).tobytes()


def test_a_film_that_is_gone_before_it_is_published_is_named_with_what_to_do(queue: Queue, home: Path) -> None:
    task = add_video("tides", draw=True)
    queue.pause("videos", "youtube")
    work()
    film = Film(**queue.get(task.task_id).results["video"])
    (Settings.of_environment().films / film.file).unlink()
    queue.resume("videos", "youtube")
    work()
    failed = queue.get(task.task_id)
    assert (failed.status, failed.type, failed.error_class) == ("failed", "youtube", "permanent")
    assert f"studio queue replay {task.task_id} --phase video" in str(failed.error)
    queue.replay(task.task_id, "video")
    work()
    assert queue.get(task.task_id).status == "completed"
