"""Make the shipped samples with espeak-ng and ffmpeg: python -m apps.transcriber.make_samples"""

import subprocess
import tempfile
from pathlib import Path

import imageio_ffmpeg

FOLDER = Path(__file__).parent / "src" / "transcriber" / "samples"
SENTENCES = {
    "degrees": "Water boils at one hundred degrees.",
    "meeting": "We will meet again tomorrow at nine in the morning.",
    "report": "Please send the report before the end of the month.",
    "weather": "The weather will be cold and clear on Sunday.",
    "train": "The last train leaves the station at ten o'clock.",
    "music": "They played music in the garden all night long.",
}
VOICE, WORDS_PER_MINUTE = "en-us+f2", "110"  # of the voices tried, one that pocketsphinx understands best


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, sentence in SENTENCES.items():
        with tempfile.NamedTemporaryFile(suffix=".wav") as wav:
            subprocess.run(["espeak-ng", "-v", VOICE, "-s", WORDS_PER_MINUTE, "-w", wav.name, sentence], check=True)
            convert = ["-v", "error", "-y", "-i", wav.name, "-ac", "1", "-ar", "16000", str(FOLDER / f"{name}.flac")]
            subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), *convert], check=True)
        (FOLDER / f"{name}.txt").write_text(f"{sentence}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
