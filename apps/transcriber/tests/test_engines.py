"""Engines, and the pure parts: chunks, captions, summaries, word errors."""

import argparse
import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.transcriber.tests.kit import recording, sample, work
from onerow import Queue
from transcriber import add_job, open_queue
from transcriber.audio import Span, chunks, listen
from transcriber.captions import Segment, read_captions, write_srt, write_text, write_vtt
from transcriber.engines import whisper_cpp
from transcriber.existing import published_captions
from transcriber.measure import samples, word_errors
from transcriber.problems import Problem
from transcriber.program import Transcription
from transcriber.settings import Settings
from transcriber.texts import extract_summary, pieces

_CPP = """#!{python}
import json, pathlib, sys
arguments = dict(zip(sys.argv[1::1], sys.argv[2::1]))
assert "-oj" in sys.argv and pathlib.Path(arguments["-m"]).is_file() and arguments["-f"].endswith(".wav"), sys.argv
assert pathlib.Path(arguments["-f"]).read_bytes()[:4] == b"RIFF"
found = {{"transcription": [{{"offsets": {{"from": 100, "to": 900}}, "text": " Words by whisper."}}]}}
pathlib.Path(arguments["-of"] + ".json").write_text(json.dumps(found))
"""


@pytest.mark.contract("Offline: pocketsphinx.")
def test_real_speech_is_recognised_without_network(queue: Queue) -> None:
    add_job(str(sample("music")), task_id="t", srt=True)
    work()
    task = queue.get("t")
    assert task.status == "completed", task.error
    heard = Path(task.results["transcribe"]["transcript_path"]).read_text()
    said = sample("music").with_suffix(".txt").read_text()
    errors, words = word_errors(said, heard)
    assert errors <= words / 2, heard


@pytest.mark.contract("whisper.cpp binary.")
def test_whisper_cpp_s_program_gets_a_chunk_and_its_json_is_read(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, model = tmp_path / "whisper-cli", tmp_path / "ggml.bin"
    program.write_text(_CPP.format(python=sys.executable))
    program.chmod(0o755)
    model.write_bytes(b"model")
    monkeypatch.setenv("TRANSCRIBER_WHISPER_CPP", str(program))
    monkeypatch.setenv("TRANSCRIBER_MEMORY", "1MB")  # of a machine with less than 4 GB
    sound = str(recording(tmp_path / "t.wav", speech=(0.5,)))
    add_job(sound, task_id="without", engine="whisper-cpp")
    work()
    queue = open_queue()
    assert "TRANSCRIBER_WHISPER_CPP_MODEL" in str(queue.get("without").error)
    queue.close()
    monkeypatch.setenv("TRANSCRIBER_WHISPER_CPP_MODEL", str(model))
    add_job(sound, task_id="t", engine="whisper-cpp", timestamps=True)
    work()
    task = open_queue().get("t")
    open_queue().close()
    assert Path(task.results["transcribe"]["transcript_path"]).read_text() == "[00:00:00] Words by whisper.\n"


@pytest.mark.parametrize(
    "output,said",
    [
        ("{}", "wrote no transcript"),
        ("no JSON", "wrote no transcript"),
        ("", "wrote no transcript"),
        (None, "failed: oops"),
    ],
)
def test_a_whisper_cpp_that_fails_says_why(home: Path, tmp_path: Path, output: str | None, said: str) -> None:
    program = tmp_path / "whisper-cli"
    writes = "echo oops >&2; exit 3" if output is None else f"printf '{output}' > {tmp_path}/chunk.json"
    program.write_text(f"#!/bin/sh\n{writes}\n")
    program.chmod(0o755)
    with pytest.raises(Problem, match=said):
        whisper_cpp.opened(Settings(home=home, whisper_cpp=str(program)))(tmp_path / "chunk.wav", "k")
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.contract("faster-whisper as an extra.")
def test_without_the_extra_faster_whisper_says_what_to_install(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    from transcriber.engines.faster import opened

    with pytest.raises(Problem, match=r"pip install faster-whisper"):
        opened(Settings(home=home))(tmp_path / "a.wav", "k")


# ── pure parts ──


@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.1, 5000),
    st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 3)), max_size=40),
    st.floats(1, 600),
)
def test_chunks_cover_the_audio_without_gaps_and_none_is_too_long(
    duration: float, found: list[tuple[float, float]], longest: float
) -> None:
    silences = sorted(Span(start, min(duration, start + length)) for start, length in found if start < duration)
    parts = chunks(duration, silences, longest)
    assert (parts[0].start, parts[-1].end) == (0.0, duration)
    assert all(one.end == two.start for one, two in itertools.pairwise(parts))
    assert all(part.end - part.start <= longest * 1.000001 for part in parts)
    assert len(parts) == 1 or parts[-1].end - parts[-1].start >= min(1, longest / 2) * 0.999


def test_a_cut_is_in_the_last_silence_that_fits_and_else_at_the_limit() -> None:
    assert chunks(100, [Span(20, 22), Span(50, 52), Span(58, 60)], 60) == [Span(0, 59), Span(59, 100)]
    assert chunks(100, [Span(20, 22)], 60) == [Span(0, 60), Span(60, 100)]
    assert chunks(120.02, [], 60) == [Span(0, 60), Span(60, 119.02), Span(119.02, 120.02)]
    assert chunks(60.02, [], 60) == [Span(0, 59.02), Span(59.02, 60.02)]


def test_silences_are_found_in_a_recording(home: Path, tmp_path: Path) -> None:
    duration, silences = listen(Settings(home=home), recording(tmp_path / "t.wav", speech=(1.0, 1.0), silence=1.0))
    assert round(duration, 1) == 4.0
    assert [(round(each.start), round(each.end)) for each in silences] == [(1, 2), (3, 4)]


def test_srt_and_vtt_are_read_as_they_are_written() -> None:
    segments = [Segment(0.0, 1.5, "조수와 달 <3 & more"), Segment(3661.25, 3662.0, "둘")]
    assert read_captions(write_vtt(segments)) == segments
    assert write_srt(segments[1:]) == "1\n01:01:01,250 --> 01:01:02,000\n둘\n"
    assert write_text(segments, timestamps=False) == "조수와 달 <3 & more\n\n둘\n"


@pytest.mark.parametrize(
    "text,cues",
    [
        ("\ufeff1\r\n00:00:01,000 --> 00:00:02,000\r\nA\r\n\r\n2\r\n100:00:03,000 --> 100:00:04,000\r\nB\r\n",
         [(1, 2, "A"), (360003, 360004, "B")]),
        ("1\n00:00:01,000 --> 00:00:02,000\nA\n2\n00:00:02,000 --> 00:00:03,000\nB\nmore\n", [(1, 2, "A"), (2, 3, "B more")]),
        ("1\n00:00:01,5-->00:00:02\n42 < 43 and <b>c</b> > d\n", [(1.5, 2, "42 < 43 and c > d")]),
        ("1\n00:00:01,000 --> 00:00:02,000\nNo.\n\n2\n00:00:05,000 --> 00:00:04,000\nNo.\n", [(1, 2, "No."), (5, 5, "No.")]),
        ("WEBVTT\n\nSTYLE\n::cue { color: red }\n\nNOTE a\nb\n\nid\n00:01.000 --> 00:02.000 align:start\n<v Bob>Hi <i>there</i></v>\n",
         [(1, 2, "Hi there")]),
        ("WEBVTT\n\n00:00.080 --> 00:02.310 position:0%\n \nso<00:00:00.400><c> today</c>\n\n00:02.310 --> 00:02.320\nso today\n \n\n"
         "00:02.320 --> 00:04.000\nso today\nwe<00:02.500><c> go</c>\n", [(0.08, 2.31, "so today"), (2.32, 4, "we go")]),
    ],
    ids=["dos", "no blank line", "loose", "repeated", "styled", "scrolling"],
)  # fmt: skip
def test_captions_as_programs_write_them_are_read(text: str, cues: list[tuple[float, float, str]]) -> None:
    assert [(each.start, each.end, each.text) for each in read_captions(text)] == cues


def test_a_text_without_times_has_no_captions() -> None:
    assert [read_captions(text) for text in ("", "no captions\n\n1\n", "WEBVTT\n\n")] == [[], [], []]


def test_captions_that_are_not_utf_8_are_read(tmp_path: Path) -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
    for words, encoding, language in (("조수", "utf-16", "en"), ("조수", "cp949", "ko"), ("café", "latin-1", "en")):
        (tmp_path / "t.srt").write_bytes(text.format(words).encode(encoding))
        assert published_captions(str(tmp_path / "t.mp4"), language)[0].text == words


def test_a_summary_takes_the_sentences_of_the_most_frequent_words_in_their_order() -> None:
    text = "The tide follows the moon. Bread was cheap. The moon moves the tide twice a day. I like red. Blue too. And green."
    assert extract_summary([Segment(0, 1, text)]) == "The tide follows the moon.\nThe moon moves the tide twice a day."
    cues = text.replace(" Bread", "|Bread").replace("moves the", "moves|the").split("|")
    assert extract_summary([Segment(0, 1, each) for each in cues]) == extract_summary([Segment(0, 1, text)])
    assert extract_summary([]) == ""


def test_a_summary_needs_no_blanks_no_punctuation_and_no_short_sentences() -> None:
    assert extract_summary([Segment(0, 1, "潮汐跟随月亮。面包很便宜。月亮牵引大海。")]) == "潮汐跟随月亮。"
    spoken = ["the tide follows the moon", "bread was cheap", "the moon moves the tide"]
    assert extract_summary([Segment(0, 1, each) for each in spoken]) == spoken[0]
    assert extract_summary([Segment(0, 1, "Pi is 3.14 about. And red.")]) == "Pi is 3.14 about."
    assert len(extract_summary([Segment(0, 1, "word " * 100_000)])) < 2_100


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=100), st.integers(5, 50))
def test_pieces_keep_every_word_and_none_is_too_long(text: str, longest: int) -> None:
    parts = pieces(text, longest)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= longest for part in parts)


@pytest.mark.parametrize(
    "said,heard,errors",
    [
        ("one two three", "one two three", 0),
        ("one two three", "one too three four", 2),
        ("a b", "", 2),
        ("It's 100.", "it's one hundred", 0),
    ],
)
def test_word_errors_are_counted(said: str, heard: str, errors: int) -> None:
    assert word_errors(said, heard)[0] == errors


def test_the_samples_are_short_recordings_with_their_words() -> None:
    assert len(samples()) == 6
    assert all(each.text and each.audio.stat().st_size < 150_000 for each in samples())


@pytest.mark.parametrize(
    "url,name",
    [
        ("/rec/2025.09.05 조수와 달 🌊.mp4", "2025.09.05_조수와_달_🌊"),
        ("/rec/a#b?v=../c.wav", "c"),
        ("https://host/%EC%A1%B0%EC%88%98.wav?x=1", "조수"),
        ("https://host/..%2f..%2fx.wav?v=../../../v", "v"),
        ("https://youtube.com/watch?v=Dm1V-ODwb1Q&t=3", "Dm1V-ODwb1Q"),
        ("https://host/", "host"),
        ("/rec/" + "달" * 80, "달" * 20),
    ],
)
def test_files_are_named_like_their_recording(home: Path, url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEROW_TASK_ID", "../7")
    transcription = Transcription(
        Settings(home=home), argparse.Namespace(url=url, engine="x", force=False, timestamps=False)
    )
    assert transcription._name == f"{name}+%2E.%2F7"
