"""`make transcriber`: recognise real speech offline, kill the worker in the midst, and show what became of the jobs.

The speech is made with espeak-ng if it is installed; else it is that of the shipped samples.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import psutil

from onerow.inboxes import drop
from transcriber.measure import samples

HOME = Path("build/transcriber").absolute()
TALK = "We will meet again tomorrow at nine in the morning. The last train leaves the station at ten o'clock."


def main() -> None:
    shutil.rmtree(HOME, ignore_errors=True)
    (HOME / "queue").mkdir(parents=True)
    os.environ.update(TRANSCRIBER_HOME=str(HOME), TRANSCRIBER_CHUNK_SECONDS="6", TRANSCRIBER_ENGINE="pocketsphinx")
    os.environ.pop("TRANSCRIBER_OPENAI_BASE_URL", None)
    os.environ.pop("OPENAI_API_KEY", None)
    how = "made with espeak-ng" if shutil.which("espeak-ng") else "from the shipped samples: there is no espeak-ng"
    print(f"A recording, {how}. It says:\n  {TALK}\n")
    talk = record(HOME / "talk.flac")
    other = [str(each.audio) for each in samples() if each.audio.stem in ("music", "meeting")]
    (HOME / "list.m3u").write_text("".join(f"#EXTINF:4,{Path(path).stem}\n{path}\n" for path in other))
    drop(
        HOME / "queue", {"job_id": 1, "url": str(talk), "title": "A talk", "srt": True, "summary": True}, name="1.json"
    )
    drop(HOME / "queue", {"job_id": 2, "url": str(HOME / "list.m3u"), "title": "A playlist"}, name="2.json")
    print("$ ls queue\n1.json  2.json\n\n$ transcriber worker --interval 0.2 &", flush=True)
    worker = start()
    until(lambda: step_done("chunk-"), "the first chunk")
    kill(worker)
    print("kill -9: the worker is gone with its programs; a part of the talk has been recognised\n")
    print("$ transcriber worker --interval 0.2 --until-idle", flush=True)
    subprocess.run([*command(), "worker", "--interval", "0.2", "--until-idle"], check=True, stderr=subprocess.DEVNULL)
    print("\n$ sqlite3 transcriber.db 'SELECT id, title, status, … FROM transcription_jobs'", flush=True)
    for row in rows(  # the playlist became two jobs
        "SELECT id, title, status, srt_completed, summary_completed FROM transcription_jobs ORDER BY created_at"
    ):
        print("  ".join(str(value) for value in row))
    ((path, srt, summary, log),) = rows(
        "SELECT transcript_path, srt_path, summary, log_path FROM transcription_jobs WHERE id = '1'"
    )
    for name, shown in (("transcript", path), ("subtitles", srt)):
        print(f"\n$ cat {Path(shown).relative_to(HOME)}  # {name}\n{Path(shown).read_text().strip()}")
    print(f"\nsummary: {summary}")
    print(f"\n$ grep chunk {Path(log).relative_to(HOME)}  # of the second worker: what was done is not repeated")
    print("\n".join(line for line in Path(log).read_text().splitlines() if "chunk-" in line))
    print(f"\nLook at the jobs: TRANSCRIBER_HOME={HOME} .venv/bin/transcriber monitor")


def command() -> list[str]:
    return [sys.executable, "-m", "transcriber"]


def start() -> subprocess.Popen[bytes]:
    argv = [*command(), "worker", "--interval", "0.2"]
    return subprocess.Popen(argv, start_new_session=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill(worker: subprocess.Popen[bytes]) -> None:
    """Kill a worker's supervisor and its process, and wait until the programs of its jobs have been ended too."""
    everything = psutil.Process(worker.pid).children(recursive=True)
    workers = psutil.Process(worker.pid).children()
    worker.kill()  # first, because it would start another process
    for each in workers:
        each.kill()
    worker.wait()
    psutil.wait_procs(everything, timeout=60)


def record(target: Path) -> Path:
    """Write the talk as a file with a pause between its sentences."""
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y"]
    with tempfile.TemporaryDirectory() as folder:
        parts = [each.audio for each in samples() if each.audio.stem in ("meeting", "train")]
        if shutil.which("espeak-ng"):
            parts = []
            for number, sentence in enumerate(TALK.split(". ")):
                parts.append(Path(folder) / f"{number}.wav")
                argv = ["espeak-ng", "-v", "en-us+f2", "-s", "110", "-w", str(parts[-1]), sentence]
                subprocess.run(argv, check=True)
        inputs = [word for part in parts for word in ("-i", str(part))]
        padded = "".join(f"[{n}]aresample=16000,apad=pad_dur=1[p{n}];" for n in range(len(parts)))
        names = "".join(f"[p{n}]" for n in range(len(parts)))
        graph = f"{padded}{names}concat=n={len(parts)}:v=0:a=1[o]"
        subprocess.run([*ffmpeg, *inputs, "-filter_complex", graph, "-map", "[o]", str(target)], check=True)
    return target


def rows(query: str) -> list[tuple[Any, ...]]:
    database = sqlite3.connect(HOME / "transcriber.db")
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def step_done(prefix: str) -> bool:
    try:
        found = rows("SELECT steps FROM task_queue WHERE task_id = '1'")
    except sqlite3.OperationalError:
        return False  # the worker has not made the tables yet
    return any(
        name.startswith(prefix) for (steps,) in found for each in json.loads(str(steps)).values() for name in each
    )


def until(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 300
    while not look():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not come in 300 s")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
