"""Make monitor.svg of the README: real jobs in the monitor while a worker runs. python -m apps.transcriber.make_picture"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import imageio_ffmpeg

PICTURE = Path(__file__).with_name("monitor.svg")
LONG = {"121": ("조수와 달: 강의 3", 5), "122": ("Monday meeting", 3)}
"""Jobs that run in the picture: id → title, and of how many repetitions of the samples it consists."""


def long_recording(target: Path, times: int) -> Path:
    """Write the samples one after the other, several times."""
    from transcriber.measure import samples

    listed = target.with_suffix(".list")
    listed.write_text("".join(f"file '{each.audio}'\n" for each in samples()) * times)
    argv = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", "-f", "concat", "-safe", "0", "-i", str(listed)]
    subprocess.run([*argv, str(target)], check=True)
    return target


def main(home: Path) -> None:
    from onerow import Queue
    from tests.tui.conftest import normal_svg
    from transcriber import add_job, monitor, open_queue
    from transcriber.measure import samples

    def run(*options: str) -> subprocess.Popen[bytes]:
        worker = [sys.executable, "-m", "transcriber", "worker", "--interval", "0.2", *options]
        return subprocess.Popen(worker, stderr=subprocess.DEVNULL)

    def at_work(queue: Queue) -> bool:
        """Whether both long recordings have been recognised in part."""
        progress = [queue.get(name).progress or {} for name in LONG]
        return all(each.get("done", 0) >= 30 for each in progress)

    queue = open_queue()
    audio = {each.audio.stem: str(each.audio) for each in samples()}
    playlist = home / "talks.m3u"
    playlist.write_text(f"#EXTINF:4,Garden concert\n{audio['music']}\n#EXTINF:4,北京天气\n{audio['weather']}\n")
    add_job(str(playlist), task_id="talks", title="Talks (a playlist)")
    add_job("/recordings/interview.mp4", task_id="118", title="Interview", engine="gpt-4o-mini-transcribe")
    add_job(audio["train"], task_id="119", title="Station noises", srt=True, summary=True)
    run("--until-idle").wait()
    for name, (title, times) in LONG.items():
        add_job(str(long_recording(home / f"{name}.flac", times)), task_id=name, title=title, summary=True)
    add_job("https://youtu.be/Dm1V-ODwb1Q", task_id="123", title="Video title", engine="youtube")
    add_job(audio["report"], task_id="124", title="Quarterly report")
    add_job("/recordings/talk.mp4", task_id="125", title="Evening talk", run_at=queue.store.now().replace(hour=23))
    queue.cancel(add_job("/recordings/test.mp4", task_id="126", title="Microphone test").task_id)
    worker = run()
    while not at_work(queue):
        time.sleep(0.1)

    async def picture() -> str:
        app = monitor.opened(queue)
        async with app.run_test(size=(120, 16)) as pilot:
            while app.reads_done < 2:
                await pilot.pause(0.05)
            return normal_svg(app.export_screenshot(title="transcriber monitor"))

    svg = asyncio.run(picture())
    worker.terminate()
    worker.wait()
    PICTURE.write_text(svg.replace(str(home), "/srv/transcriber"), encoding="utf-8")
    queue.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TRANSCRIBER_HOME": folder, "TRANSCRIBER_CHUNK_SECONDS": "10"}
        main(Path(folder))
