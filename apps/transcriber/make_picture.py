"""Make monitor.svg of the README: real jobs in the monitor. python -m apps.transcriber.make_picture"""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).with_name("monitor.svg")


def main() -> None:
    from tests.tui.conftest import normal_svg
    from transcriber import add_job, monitor, open_queue
    from transcriber.measure import samples

    queue = open_queue()
    titles = {"meeting": "Monday meeting", "music": "조수와 달: garden concert", "train": "Station announcements"}
    for each in samples():
        if each.audio.stem in titles:
            add_job(str(each.audio), task_id=each.audio.stem, title=titles[each.audio.stem], srt=True, summary=True)
    add_job("https://youtu.be/Dm1V-ODwb1Q", task_id="123", title="Video title", engine="gpt-4o-mini-transcribe")
    add_job(
        "/recordings/interview.mp4",
        task_id="124",
        title="Interview",
        engine="whisper-cpp",
        run_at="2040-01-01T00:00:00Z",
    )
    worker = [sys.executable, "-m", "transcriber", "worker", "--until-idle"]
    subprocess.run(worker, check=True, stderr=subprocess.DEVNULL)
    queue.cancel("124")
    add_job("/recordings/talk.mp4", task_id="125", title="Talk", run_at="2040-01-01T00:00:00Z")

    async def picture() -> str:
        app = monitor.opened(queue)
        async with app.run_test(size=(140, 14)) as pilot:
            while app.reads_done < 2:
                await pilot.pause(0.05)
            return normal_svg(app.export_screenshot(title="transcriber monitor"))

    svg = asyncio.run(picture())
    PICTURE.write_text(svg.replace(os.environ["TRANSCRIBER_HOME"], "/srv/transcriber"), encoding="utf-8")
    queue.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ["TRANSCRIBER_HOME"] = home
        main()
