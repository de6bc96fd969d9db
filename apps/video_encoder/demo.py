"""`make encoder`: upload three drawn clips, kill the worker in the midst, and write a page that plays the results.

SQS and S3 are moto, on this machine. The page is build/encoder/site/index.html.
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.servers.sqs import SqsServer
from video_encoder.offline import clips, cloud

HOME = Path("build/encoder")
PATIENCE = 300.0
_CLIPS = {"test card": "시험 방송.mp4", "gradients": "渐变.mp4", "mandelbrot": "Mandelbrot.mp4"}


class Story:
    """Runs and prints the commands that a user would type."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self._home = home
        self._environment = {**os.environ, **environment}
        self.worker: subprocess.Popen[bytes] | None = None

    def encoder(self, *words: str, quiet: bool = False) -> str:
        if not quiet:
            print(f"\n$ encoder {' '.join(words)}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "video_encoder", *words],
            env=self._environment, check=False, timeout=PATIENCE, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            sys.exit(done.stderr)
        if not quiet:
            print(done.stdout.rstrip(), flush=True)
        return done.stdout

    def start(self) -> None:
        print("\n$ encoder run &", flush=True)
        with (self._home / "worker.log").open("ab") as log:
            self.worker = subprocess.Popen(
                [sys.executable, "-m", "video_encoder", "run", "--interval", "200ms", "--log-format", "text"],
                env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill the supervisor and the worker with kill -9; ffmpeg belongs to the worker and ends with it."""
        assert self.worker is not None
        processes = [psutil.Process(self.worker.pid), *psutil.Process(self.worker.pid).children()]
        for process in processes:
            process.send_signal(signal.SIGKILL)
        self.worker.wait()

    def stop(self) -> None:
        if self.worker is not None and self.worker.poll() is None:
            self.worker.send_signal(signal.SIGTERM)
            self.worker.wait(60)

    def videos(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.encoder("list", "--json", quiet=True).splitlines()]

    def until(self, condition: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        """Print each change of a status, until a condition holds."""
        shown: dict[str, str] = {}
        deadline = time.monotonic() + PATIENCE
        while True:
            videos = self.videos()
            for video in videos:
                if shown.get(video["video_id"]) != video["status"]:
                    shown[video["video_id"]] = video["status"]
                    print(f"  {video['status']:16}  {video['name']}", flush=True)
            if condition(videos):
                return
            if time.monotonic() > deadline:
                sys.exit(f"{what} did not come in {PATIENCE:.0f} s; see {self._home / 'worker.log'}")
            time.sleep(0.3)


def tell(story: Story, home: Path) -> None:
    first, second, third = (
        clips.draw(home / name, pattern=pattern, seconds=5, size="320x180", rate=20) for pattern, name in _CLIPS.items()
    )
    story.encoder("upload", str(first), str(second))
    print("\nThe third is uploaded by a program without credentials; the bucket's own event is the message.")
    made = json.loads(story.encoder("presign", third.name))
    request = urllib.request.Request(made["url"], third.read_bytes(), {"Content-Type": "video/mp4"}, method="PUT")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        print(f"PUT {answer.status}")
    story.start()
    story.until(lambda found: any(_halfway(video) for video in found), "progress")
    story.kill()
    print("\n… killed with kill -9 while ffmpeg was encoding. Another worker takes over:")
    story.start()
    story.until(lambda found: len(found) == 3 and all(video["status"] == "READY" for video in found), "the end")
    story.stop()
    story.encoder("list")
    story.encoder("page", str(home / "site"), "--title", "Encoded videos")
    print(f"\nIt plays in a browser. With HLS: python -m http.server -b 127.0.0.1 -d {home / 'site'}")


def _halfway(video: dict[str, Any]) -> bool:
    return video["status"] == "PROCESSING" and bool(video["progress"])


def main() -> None:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    credentials = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo", "AWS_DEFAULT_REGION": "eu-central-1"}
    os.environ.update(credentials)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto's line for each request
    server = SqsServer()
    try:
        variables = cloud.create(server.url, events=True)
        store = {"ENCODER_STORE": f"sqlite:///{HOME / 'encoder.db'}", "ENCODER_WORK": str(HOME / "work")}
        story = Story(HOME, {**credentials, **variables, **store, "ENCODER_HEIGHTS": "180,120,72"})
        try:
            tell(story, HOME)
        finally:
            story.stop()
    finally:
        server.close()


if __name__ == "__main__":
    main()
