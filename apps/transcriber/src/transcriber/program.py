"""main.py: download → audio → transcription → SRT and VTT → summary → translation, each a step that a retry skips."""

import argparse
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from onerow import OnerowError
from transcriber import texts
from transcriber.audio import MP3_BYTES_PER_SECOND, Span, chunks, cut, extract_audio, listen, speech_in
from transcriber.captions import Segment, write_srt, write_text, write_vtt
from transcriber.download import download
from transcriber.engines import EXISTING, Hear, check_engine, is_remote, open_engine, suffix_of
from transcriber.existing import own_subtitles, published_captions
from transcriber.jobs import FLAGS, video_id_of
from transcriber.problems import EXIT_CODES, Problem, problem_of
from transcriber.settings import Endpoint, Settings
from transcriber.steps import Steps, write_file

_LONGEST_NAME = 60
_NOT_IN_NAMES = frozenset(' /\\:*?"<>|%')
_LONGEST_SUMMARY = 20_000


def main(arguments: Sequence[str]) -> int:
    """Transcribe one recording; return the exit code, which tells the class of an error."""
    parser = argparse.ArgumentParser(prog="main.py", description="Transcribe one recording.")
    parser.add_argument("url", help="an http(s) URL, or the absolute path of a file")
    parser.add_argument("--engine", help="pocketsphinx, gpt-4o-mini-transcribe, whisper-cpp, youtube …")
    for flag, text in FLAGS.items():
        parser.add_argument(f"--{flag}", action="store_true", help=text)
    asked = parser.parse_args(arguments)
    try:
        settings = Settings.of_environment()
        Transcription(settings, asked).run()
    except OnerowError as error:
        print(error, file=sys.stderr)
        return EXIT_CODES["permanent"]
    except Exception as error:
        if (problem := problem_of(error)) is None:
            traceback.print_exc()
            return EXIT_CODES["unknown"]
        print(problem, file=sys.stderr)
        return EXIT_CODES[problem.error_class]
    return 0


class Transcription:
    """One run of main.py for one recording."""

    def __init__(self, settings: Settings, asked: argparse.Namespace) -> None:
        self._settings = settings
        self._asked = asked
        self._engine: str = asked.engine or settings.engine
        # A worker's key is the same for all attempts of a job; by hand it is that of the recording and the engine.
        key = os.environ.get("ONEROW_IDEMPOTENCY_KEY", "")
        self._key = key or sha256(f"{asked.url}\n{self._engine}\n{asked.timestamps}".encode()).hexdigest()[:16]
        job = _file_name(os.environ.get("ONEROW_TASK_ID") or self._key)
        self._name = f"{_readable(video_id_of(asked.url))}+{job}"  # the name of a job has no plus
        folder = work_folder(settings, self._key)
        if asked.force and not key:
            shutil.rmtree(folder, ignore_errors=True)
        self._steps = Steps(folder, os.environ.get("ONEROW_STEPS", "").splitlines())

    def run(self) -> None:
        check_engine(self._engine, self._settings)
        if self._asked.translate and self._settings.endpoint is None:
            raise Problem("--translate needs an endpoint: set OPENAI_API_KEY, or TRANSCRIBER_OPENAI_BASE_URL")
        self._steps.say(f"engine {self._engine}, log {os.environ.get('OPEN_SCRIBE_TUI_LOG') or 'none'}")
        result: dict[str, Any] = {"engine": self._engine, "log_path": os.environ.get("OPEN_SCRIBE_TUI_LOG") or None}
        source = self._download(result)
        segments = self._transcribe(source, result)
        text = write_text(segments, timestamps=self._asked.timestamps)
        if self._asked.srt:
            files = self._run("srt", 85, partial(self._subtitles, segments))["files"]
            result |= {"srt_path": files[0], "vtt_path": files[1]}
        if self._asked.summary:
            made = self._run("summary", 90, partial(self._summarise, segments, text))
            result["summary"] = made["summary"]
        if self._asked.translate:
            made = self._run("translation", 95, partial(self._translate, text))
            result["translation_path"] = made["files"][0]
        _write_result(result)
        self._steps.say("progress 100% completed")

    # ── stages ──

    def _download(self, result: dict[str, Any]) -> Path | None:
        if self._engine == "youtube" and not self._asked.video:
            self._steps.run("download", lambda: {"files": []})  # captions alone are taken
            return None
        folder = self._settings.folder("video") if self._asked.video else self._steps.folder
        target = folder / (self._name if self._asked.video else "source")

        def make() -> dict[str, Any]:
            return {"files": [str(download(self._asked.url, target, self._steps))]}

        source = Path(self._run("download", 5, make)["files"][0])
        if self._asked.video:
            result["video_path"] = str(source)
        return source

    def _transcribe(self, source: Path | None, result: dict[str, Any]) -> list[Segment]:
        if self._engine in EXISTING:
            found = self._run("transcription", 25, partial(self._existing, source))
        else:
            assert source is not None
            audio = self._audio(source)
            found = self._run("transcription", 25, partial(self._hear, audio))
            result["audio_path"] = str(audio)
        result["transcript_path"] = found["files"][0]
        return msgspec.convert(found["segments"], list[Segment])

    def _audio(self, source: Path) -> Path:
        target = self._settings.folder("audio") / f"{self._name}.flac"

        def make() -> dict[str, Any]:
            extract_audio(self._settings, source, target)
            return {"files": [str(target)]}

        return Path(self._run("audio", 22, make)["files"][0])

    def _existing(self, source: Path | None) -> dict[str, Any]:
        if self._engine == "youtube":
            return self._transcript(published_captions(self._asked.url, self._settings.language))
        assert source is not None
        return self._transcript(own_subtitles(self._settings, source, self._steps.folder / "own.srt"))

    def _hear(self, audio: Path) -> dict[str, Any]:
        """Transcribe the chunks, several at once; each is a step."""
        hear = open_engine(self._engine, self._settings)
        duration, silences = listen(self._settings, audio)
        spans = chunks(duration, silences, self._longest_chunk())
        self._steps.say(f"{duration:.1f} s of sound in {len(spans)} chunks, {self._settings.parallel} at once")
        heard: dict[int, list[Segment]] = {}
        failed = threading.Event()

        def work(number: int, span: Span) -> None:
            if failed.is_set():
                return  # chunks that run now are completed and kept; no other begins
            try:
                heard[number] = self._chunk(f"chunk-{number}", audio, span, speech_in(span, silences), hear)
            except BaseException:
                failed.set()
                raise
            done = len(heard)
            self._steps.say(f"progress {25 + 55 * done // len(spans)}% transcription, chunk {done} of {len(spans)}")

        with ThreadPoolExecutor(self._settings.parallel) as pool:
            futures = [pool.submit(work, number, span) for number, span in enumerate(spans, 1)]
            try:
                for future in futures:
                    future.result()
            finally:
                failed.set()
        return self._transcript([segment for number in sorted(heard) for segment in heard[number]])

    def _chunk(self, name: str, audio: Path, span: Span, speech: list[Span], hear: Hear) -> list[Segment]:
        # A step of another span or engine does not count: settings may change between two attempts.
        inputs = {"from": span.start, "to": span.end, "engine": self._engine}
        make = partial(self._hear_chunk, name, audio, span, speech, hear, self._key_of(name, inputs))
        return msgspec.convert(self._steps.run(name, make, **inputs)["segments"], list[Segment])

    def _hear_chunk(
        self, name: str, audio: Path, span: Span, speech: list[Span], hear: Hear, key: str
    ) -> dict[str, Any]:
        target = self._steps.folder / f"{name}{suffix_of(self._engine)}"
        cut(self._settings, audio, span, target)
        found = hear(target, key)
        target.unlink()
        if [each.end for each in found] == [0]:  # a model that tells no times
            segments = texts.spread(found[0].text, speech)
        else:
            segments = [Segment(span.start + each.start, span.start + each.end, each.text) for each in found]
        # Models may tell times outside of what they heard.
        within = [(min(max(each.start, span.start), span.end), min(each.end, span.end), each.text) for each in segments]
        timed = [Segment(round(start, 3), round(max(start, end), 3), text) for start, end, text in within]
        return {"segments": msgspec.to_builtins(timed)}

    def _longest_chunk(self) -> float:
        endpoint = self._settings.endpoint
        if endpoint is None or not is_remote(self._engine):
            return self._settings.chunk_seconds
        return max(1.0, min(self._settings.chunk_seconds, 0.95 * endpoint.longest / MP3_BYTES_PER_SECOND))

    def _transcript(self, segments: list[Segment]) -> dict[str, Any]:
        path = self._settings.folder("transcript") / f"{self._name}.txt"
        write_file(path, write_text(segments, timestamps=self._asked.timestamps).encode())
        return {"files": [str(path)], "segments": msgspec.to_builtins(segments)}

    def _subtitles(self, segments: list[Segment]) -> dict[str, Any]:
        stem = self._settings.folder("transcript") / self._name
        files = {f"{stem}.srt": write_srt(segments), f"{stem}.vtt": write_vtt(segments)}
        for path, content in files.items():
            write_file(Path(path), content.encode())
        return {"files": list(files)}

    def _summarise(self, segments: list[Segment], text: str) -> dict[str, Any]:
        endpoint = self._settings.endpoint
        summary = (
            texts.extract_summary(segments)
            if endpoint is None
            else texts.ask_summary(partial(self._ask, endpoint, "summary"), text, self._settings.language)
        )
        path = self._settings.folder("transcript") / f"{self._name}.summary.txt"
        write_file(path, f"{summary}\n".encode())
        return {"files": [str(path)], "summary": summary[:_LONGEST_SUMMARY]}

    def _translate(self, text: str) -> dict[str, Any]:
        endpoint, to = self._settings.endpoint, self._settings.translate_to
        assert endpoint is not None
        translated = texts.ask_translation(partial(self._ask, endpoint, "translation"), text, to)
        path = self._settings.folder("transcript") / f"{self._name}.{_file_name(to)}.txt"
        write_file(path, f"{translated}\n".encode())
        return {"files": [str(path)]}

    def _ask(self, endpoint: Endpoint, stage: str, piece: str, task: str, text: str) -> str:
        """Return the endpoint's answer for a piece of the text; each piece is a step."""
        name = f"{stage}-{piece}"
        inputs = {"task": task, "model": endpoint.model, "of": sha256(text.encode()).hexdigest()[:16]}
        key = self._key_of(name, inputs)
        return str(self._steps.run(name, lambda: {"text": texts.ask(endpoint, task, text, key)}, **inputs)["text"])

    def _key_of(self, name: str, inputs: dict[str, Any]) -> str:
        """Return a key that is the same at each attempt of a step with the same inputs."""
        return f"{self._key}:{name}:{sha256(msgspec.json.encode(inputs)).hexdigest()[:8]}"

    def _run(self, name: str, percent: int, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        self._steps.say(f"progress {percent}% {name}")
        return self._steps.run(name, make)


def work_folder(settings: Settings, key: str) -> Path:
    """Return the folder of a job's steps, by its idempotency key."""
    return settings.folder("work") / _file_name(key)


def _readable(text: str) -> str:
    """Return a name of a recording as the beginning of a file name, in its own letters."""
    safe = "".join(letter if letter.isprintable() and letter not in _NOT_IN_NAMES else "_" for letter in text)
    return safe.encode()[:_LONGEST_NAME].decode(errors="ignore").lstrip("_.-") or "recording"


def _file_name(text: str) -> str:
    """Return an id as a part of a file name that no other id has, of bounded length."""
    safe = quote(text, safe="")
    if safe[0] in ".-":
        safe = f"%{ord(safe[0]):X}{safe[1:]}"
    if len(safe) <= _LONGEST_NAME:
        return safe
    return f"{safe[: _LONGEST_NAME - 9].rpartition('%')[0] or safe[: _LONGEST_NAME - 9]}~{sha256(text.encode()).hexdigest()[:8]}"


def _write_result(result: dict[str, Any]) -> None:
    if path := os.environ.get("ONEROW_RESULT_FILE"):
        write_file(Path(path), msgspec.json.encode(result))
    else:
        print(msgspec.json.format(msgspec.json.encode(result)).decode())
