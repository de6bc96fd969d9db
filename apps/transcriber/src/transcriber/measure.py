"""Word error rates of engines on the shipped samples, which are speech by espeak-ng."""

import re
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from onerow import BadInput
from transcriber.audio import Span, cut, listen
from transcriber.engines import EXISTING, check_engine, open_engine, suffix_of
from transcriber.problems import Problem, problem_of
from transcriber.settings import Settings


class Sample(msgspec.Struct, frozen=True):
    """A recording and what is said in it."""

    audio: Path
    text: str


def samples() -> list[Sample]:
    """Return the shipped samples."""
    folder = Path(str(files("transcriber"))) / "samples"
    return [Sample(path, path.with_suffix(".txt").read_text("utf-8").strip()) for path in sorted(folder.glob("*.flac"))]


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """Return the number of wrong, missing and added words, and of the words that were said."""
    reference, found = _words(said), _words(heard)
    row = list(range(len(found) + 1))
    for number, word in enumerate(reference, 1):
        diagonal, row[0] = row[0], number
        for position, other in enumerate(found, 1):
            diagonal, row[position] = (
                row[position],
                min(row[position] + 1, row[position - 1] + 1, diagonal + (word != other)),
            )
    return row[-1], len(reference)


def measure(engine: str, settings: Settings, say: Callable[[str], object], given: Sequence[Sample] = ()) -> float:
    """Transcribe samples with an engine, print what it hears, and return the word error rate."""
    if engine in EXISTING:
        raise BadInput(f"the engine {engine!r} hears nothing", field="engine")
    errors = words = 0
    seconds = 0.0
    began = time.monotonic()
    try:
        check_engine(engine, settings)
        hear = open_engine(engine, settings)
        with tempfile.TemporaryDirectory(prefix="transcriber-") as folder:
            for number, sample in enumerate(given or samples()):
                chunk = Path(folder) / f"{number}{suffix_of(engine)}"
                duration, _ = listen(settings, sample.audio)
                cut(settings, sample.audio, Span(0.0, duration), chunk)
                heard = " ".join(segment.text for segment in hear(chunk, f"measure-{number}"))
                wrong, said = word_errors(sample.text, heard)
                errors, words, seconds = errors + wrong, words + said, seconds + duration
                say(f"{wrong:3} of {said:3}  said:  {sample.text}\n            heard: {heard}")
    except Exception as error:
        if (problem := problem_of(error)) is None:
            raise
        raise _as_input(problem) from None
    rate = errors / words
    say(f"{engine}: word error rate {rate:.0%} ({errors} of {words} words), {seconds:.0f} s of speech in "
        f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return rate


def _as_input(problem: Problem) -> BadInput:
    return BadInput(str(problem), field="engine")


_NUMBERS = {"100": "one hundred", "9": "nine", "10": "ten", "5": "five", "2": "two", "3": "three"}


def _words(text: str) -> list[str]:
    plain = re.sub(r"\d+", lambda found: _NUMBERS.get(found[0], found[0]), text.lower())
    return re.sub(r"[^\w\s']", " ", plain).split()
