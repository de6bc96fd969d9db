"""The engine faster-whisper, an extra: Whisper on CTranslate2."""

import threading
from pathlib import Path
from typing import Any

from transcriber.captions import Segment
from transcriber.problems import Problem
from transcriber.settings import Settings


def opened(settings: Settings) -> "FasterWhisper":
    return FasterWhisper(settings)


class FasterWhisper:
    """One model for all chunks; it uses all cores for one chunk at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._model: Any = None

    def __call__(self, chunk: Path, key: str) -> list[Segment]:
        with self._lock:
            self._model = self._model or self._load()
            language = None if self._settings.language == "auto" else self._settings.language
            try:
                segments, _ = self._model.transcribe(str(chunk), language=language, beam_size=5)
                return [Segment(round(s.start, 3), round(s.end, 3), s.text.strip()) for s in segments if s.text.strip()]
            except ValueError as error:  # a language that the model does not know
                raise Problem(f"faster-whisper: {str(error)[:300]}") from None

    def _load(self) -> Any:
        try:
            from faster_whisper import WhisperModel
        except ModuleNotFoundError:
            raise Problem("faster-whisper is not installed: pip install faster-whisper") from None
        model = self._settings.faster_whisper_model
        try:
            return WhisperModel(model, device="cpu", compute_type="int8")
        except (RuntimeError, ValueError, OSError) as error:
            # A model that is named, not a folder, is fetched once: without network that is worth a retry.
            error_class = "network" if isinstance(error, OSError) and not Path(model).exists() else "permanent"
            said = " ".join(str(error).split())[:300]
            raise Problem(
                f"the model {model!r} can't be loaded: {said}; set TRANSCRIBER_FASTER_WHISPER_MODEL", error_class
            ) from None
